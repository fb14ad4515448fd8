package router

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"image/png"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"

	"llmgw/engines/sim"
	"llmgw/mesh/catalog"
	"llmgw/router/files"
	"llmgw/router/keys"
	"llmgw/router/relay"
)

// makers are three heads; the simulated engine, which draws and speaks, is at b.
func makers(t *testing.T) map[string]*node {
	t.Helper()
	engine := httptest.NewServer(sim.New(sim.Config{Alias: "m", Key: "engine-key"}).Handler())
	t.Cleanup(engine.Close)
	auth := fakeAuth{"good": {ID: "k1", Scopes: []string{keys.ScopeInfer}}, "good-other": {ID: "k2", Scopes: []string{keys.ScopeInfer}}}
	heads := map[string]*node{}
	for _, name := range []string{"a", "b", "c"} {
		kept, err := files.Open(files.Config{Dir: t.TempDir(), Owner: FileOwner(name), Entropy: rand.Reader})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { kept.Close() })
		heads[name] = newNode(t, func(c *Config) {
			c.Peer, c.Auth, c.Files = name, auth, kept
			c.Trusted = func() []netip.Prefix { return nil }
		})
	}
	replica := heads["b"].serveLocally("m", engine.URL)
	for name, n := range heads {
		r := replica
		r.Peer, r.Local = "b", name == "b"
		n.catalog.set(view("m", r))
		for other, o := range heads {
			if other != name {
				n.mesh.set(other, o.ServeInfer)
				n.mesh.set(other+ProtocolFiles, o.ServeFile)
			}
		}
	}
	return heads
}

type pictures struct {
	Created int64
	Data    []struct {
		URL    string
		Base64 string `json:"b64_json"`
	}
}

func draw(t *testing.T, n *node, body string, change ...func(*http.Request)) pictures {
	t.Helper()
	resp := send(t, n, "POST", "/v1/images/generations", body, change...)
	raw := text(t, resp)
	var out pictures
	if err := json.Unmarshal([]byte(raw), &out); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%d: %.300s", resp.StatusCode, raw)
	}
	return out
}

// at is the path of a link, which must be to the head that was asked.
func at(t *testing.T, n *node, link string) string {
	t.Helper()
	path, ok := strings.CutPrefix(link, n.url)
	if !ok {
		t.Fatalf("%s is not at %s", link, n.url)
	}
	return path
}

func TestPicturesAreLinkedToAndFoundAtAnyHead(t *testing.T) {
	heads := makers(t)
	a := heads["a"]
	inline := draw(t, a, `{"model":"m","prompt":"a cat","n":2,"response_format":"b64_json"}`)
	plain := draw(t, a, `{"model":"m","prompt":"a cat","n":2}`)
	linked := draw(t, a, `{"model":"m","prompt":"a cat","n":2,"response_format":"url"}`)
	if len(inline.Data) != 2 || len(linked.Data) != 2 || linked.Created == 0 {
		t.Fatalf("%+v, %+v", inline, linked)
	}
	for i, one := range linked.Data {
		if plain.Data[i].Base64 != inline.Data[i].Base64 || plain.Data[i].URL != "" {
			t.Errorf("without a format the engine links to itself: %+v", plain.Data[i])
		}
		want, err := base64.StdEncoding.DecodeString(inline.Data[i].Base64)
		if err != nil || one.Base64 != "" {
			t.Fatalf("%+v, %v", one, err)
		}
		path := at(t, a, one.URL)
		for name, n := range heads {
			resp := send(t, n, "GET", path, "")
			if got := text(t, resp); got != string(want) || resp.Header.Get("Content-Type") != "image/png" {
				t.Errorf("at %s: %d, %s, %d bytes, want %d", name, resp.StatusCode, resp.Header.Get("Content-Type"), len(got), len(want))
			}
		}
		if _, err := png.Decode(bytes.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
}

func TestAFileIsServedAsFilesAre(t *testing.T) {
	heads := makers(t)
	whole := ""
	path := at(t, heads["a"], draw(t, heads["a"], `{"model":"m","prompt":"x","size":"1024x1024","response_format":"url"}`).Data[0].URL)
	for _, name := range []string{"a", "c"} {
		n := heads[name]
		get := func(method string, change ...func(*http.Request)) (*http.Response, string) {
			resp := send(t, n, method, path, "", change...)
			return resp, text(t, resp)
		}
		resp, body := get("GET")
		if whole == "" {
			whole = body
		}
		if body != whole || resp.Header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%s: %d bytes of %d, %v", name, len(body), len(whole), resp.Header)
		}
		tag := resp.Header.Get("ETag")
		if resp, body = get("HEAD"); body != "" || resp.ContentLength != int64(len(whole)) || resp.StatusCode != 200 {
			t.Errorf("%s: HEAD: %d, %d", name, resp.StatusCode, resp.ContentLength)
		}
		resp, body = get("GET", func(r *http.Request) { r.Header.Set("Range", "bytes=100-199") })
		if resp.StatusCode != 206 || body != whole[100:200] {
			t.Errorf("%s: a part: %d, %d bytes", name, resp.StatusCode, len(body))
		}
		resp, body = get("GET", func(r *http.Request) { r.Header.Set("Range", "bytes=0-9,500-") })
		if resp.StatusCode != 206 || !strings.Contains(body, whole[500:]) {
			t.Errorf("%s: two parts: %d, %d bytes", name, resp.StatusCode, len(body))
		}
		if resp, _ = get("GET", func(r *http.Request) { r.Header.Set("Range", "bytes=99999999-") }); resp.StatusCode != 416 {
			t.Errorf("%s: beyond the end: %d", name, resp.StatusCode)
		}
		if resp, body = get("GET", func(r *http.Request) { r.Header.Set("If-None-Match", tag) }); resp.StatusCode != 304 || body != "" {
			t.Errorf("%s: known already: %d", name, resp.StatusCode)
		}
	}
}

func TestAFileIsToldOfAndDeleted(t *testing.T) {
	heads := makers(t)
	path := at(t, heads["a"], draw(t, heads["a"], `{"model":"m","prompt":"x","response_format":"url"}`).Data[0].URL)
	about := strings.TrimSuffix(path, "/content")
	var f struct {
		ID, Object, Filename string
		Bytes                int64
		CreatedAt            int64 `json:"created_at"`
		ExpiresAt            int64 `json:"expires_at"`
	}
	if err := json.Unmarshal([]byte(text(t, send(t, heads["c"], "GET", about, ""))), &f); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(about, f.ID) || f.Object != "file" || f.Filename != "image.png" || f.Bytes == 0 || f.ExpiresAt-f.CreatedAt != 3600 {
		t.Errorf("%+v", f)
	}
	for _, p := range []string{path, about, "/v1/files/" + strings.Replace(f.ID, "a_", "a_0", 1), "/v1/files/resume.pdf"} {
		other := func(r *http.Request) { r.Header.Set("Authorization", "Bearer good-other") }
		if p != path && p != about {
			other = func(*http.Request) {}
		}
		for name := range heads {
			wantError(t, send(t, heads[name], "GET", p, "", other), 404, "file_not_found")
		}
	}
	wantError(t, send(t, heads["c"], "GET", path, "", func(r *http.Request) { r.Header.Del("Authorization") }), 401, "invalid_api_key")
	wantError(t, send(t, heads["c"], "DELETE", about, "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer good-other") }), 404, "file_not_found")
	if got := text(t, send(t, heads["c"], "DELETE", about, "")); !strings.Contains(got, `"deleted":true`) {
		t.Error(got)
	}
	wantError(t, send(t, heads["a"], "GET", path, ""), 404, "file_not_found")
	wantError(t, send(t, heads["a"], "GET", strings.Replace(path, "file-a_", "file-z_", 1), ""), 503, "node_unreachable")
}

// TestAFileWhoseOwnerEndsIsCutNotFaked: a client must see that its picture is not whole.
func TestAFileWhoseOwnerEndsIsCutNotFaked(t *testing.T) {
	heads := makers(t)
	path := at(t, heads["a"], draw(t, heads["a"], `{"model":"m","prompt":"x","size":"1024x1024","response_format":"url"}`).Data[0].URL)
	serve := heads["a"].ServeFile
	heads["c"].mesh.set("a"+ProtocolFiles, func(s relay.Stream) { serve(&endsEarly{Stream: s, left: 1500}) })
	resp := send(t, heads["c"], "GET", path, "")
	if raw, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("%d bytes of %d and no error", len(raw), resp.ContentLength)
	}
}

// endsEarly is closed in order after so many bytes.
type endsEarly struct {
	relay.Stream
	left int
}

func (s *endsEarly) Write(p []byte) (int, error) {
	n, err := s.Stream.Write(p[:min(len(p), s.left)])
	if s.left -= n; s.left == 0 && err == nil {
		err = io.ErrClosedPipe
		_ = s.Stream.CloseWrite()
	}
	return n, err
}

// Reset lets what was written arrive.
func (s *endsEarly) Reset() error { return s.Stream.Close() }

func TestEditedPicturesAndSpeechAreLinkedToo(t *testing.T) {
	heads := makers(t)
	a, c := heads["a"], heads["c"]
	for _, format := range []string{"url", "b64_json", ""} {
		var form bytes.Buffer
		w := multipart.NewWriter(&form)
		_ = w.WriteField("response_format", format)
		_ = w.WriteField("model", "M")
		_ = w.WriteField("prompt", "a dog")
		part, _ := w.CreateFormFile("image", "in.png")
		_, _ = part.Write([]byte("response_format"))
		_ = w.Close()
		resp := send(t, a, "POST", "/v1/images/edits", form.String(), func(r *http.Request) { r.Header.Set("Content-Type", w.FormDataContentType()) })
		var out pictures
		raw := text(t, resp)
		if err := json.Unmarshal([]byte(raw), &out); err != nil || len(out.Data) != 1 {
			t.Fatalf("%q: %v: %.300s", format, err, raw)
		}
		if format == "url" {
			if got := send(t, c, "GET", at(t, a, out.Data[0].URL), ""); got.Header.Get("Content-Type") != "image/png" || !strings.HasPrefix(text(t, got), "\x89PNG") {
				t.Errorf("%v", got.Header)
			}
		}
		if format == "b64_json" && out.Data[0].Base64 == "" {
			t.Errorf("%.300s", raw)
		}
	}
	const body = `{"model":"m","input":"hello"}`
	want := text(t, send(t, a, "POST", "/v1/audio/speech", body))
	resp := send(t, a, "POST", "/v1/audio/speech", body, func(r *http.Request) { r.Header.Set(answerHeader, "url") })
	var speech struct {
		URL   string
		Type  string `json:"content_type"`
		Bytes int
	}
	raw := text(t, resp)
	if err := json.Unmarshal([]byte(raw), &speech); err != nil || speech.Type != "audio/wav" || speech.Bytes != len(want) || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%v: %s", err, raw)
	}
	if got := text(t, send(t, c, "GET", at(t, a, speech.URL), "")); got != want || !strings.HasPrefix(want, "RIFF") {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
}

// TestLinksAreToWhereTheClientIs: not to where a proxy, or somebody who is none, says.
func TestLinksAreToWhereTheClientIs(t *testing.T) {
	heads := makers(t)
	a := heads["a"]
	behind := func(r *http.Request) {
		r.Header.Set("X-Forwarded-Proto", "https")
		r.Header.Set("X-Forwarded-Host", "ai.example.org")
	}
	const body = `{"model":"m","prompt":"x","response_format":"url"}`
	at(t, a, draw(t, a, body, behind).Data[0].URL)
	a.cfg.Trusted = func() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }
	if link := draw(t, a, body, behind).Data[0].URL; !strings.HasPrefix(link, "https://ai.example.org/v1/files/file-a_") {
		t.Error(link)
	}
}

func TestEnginesThatGiveNoPictureAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		answer, says string
		status       int
	}{
		"a link of its own": {`{"data":[{"url":"http://127.0.0.1:8780/x.png"}]}`, "link of its own", 502},
		"nothing":           {`{"data":[{}]}`, "or with nothing", 502},
		"no base64":         {`{"data":[{"b64_json":"!"}]}`, "not base64", 502},
		"no list":           {`{"data":7}`, "no list", 502},
		"no JSON":           {`pictures`, "no list", 502},
		"a data URL":        {`{"data":[{"url":"data:image/png;base64,aGVsbG8="}],"usage":{"a":1}}`, `"usage":{"a":1}`, 200},
	} {
		t.Run(name, func(t *testing.T) {
			kept, err := files.Open(files.Config{Dir: t.TempDir(), Owner: FileOwner("a"), Entropy: rand.Reader})
			if err != nil {
				t.Fatal(err)
			}
			defer kept.Close()
			engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.answer) }))
			defer engine.Close()
			n := newNode(t, func(cfg *Config) { cfg.Files = kept })
			n.catalog.set(view("m", n.serveLocally("m", engine.URL)))
			resp := send(t, n, "POST", "/v1/images/generations", `{"model":"m","prompt":"x","response_format":"url"}`)
			if got := text(t, resp); resp.StatusCode != c.status || !strings.Contains(got, c.says) {
				t.Errorf("%d: %s", resp.StatusCode, got)
			}
		})
	}
}

func TestWhatCannotBeKeptIsNoLink(t *testing.T) {
	heads := makers(t)
	dir := t.TempDir()
	kept, err := files.Open(files.Config{Dir: dir, Owner: FileOwner("a"), Entropy: rand.Reader, Room: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	a := heads["a"]
	a.cfg.Files = kept
	const body = `{"model":"m","prompt":"x","response_format":"url"}`
	wantError(t, send(t, a, "POST", "/v1/images/generations", body), 500, "file_not_kept")
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Error(entries)
	}
	if notKept(files.ErrTooLarge).Status != 500 {
		t.Error("too large")
	}
}

// TestProvidersAreAskedForPicturesInTheAnswer: a link of a provider may be one that only
// this mesh's key opens.
func TestProvidersAreAskedForPicturesInTheAnswer(t *testing.T) {
	mesh, host := Replica{}, Replica{Provider: &catalog.Provider{Sponsor: "a"}, Sponsored: true}
	provider := Replica{Provider: &catalog.Provider{}}
	for _, c := range []struct {
		format  string
		replica Replica
		want    string
	}{
		{`"url"`, mesh, `"b64_json"`}, {`"url"`, host, `"b64_json"`}, {`"url"`, provider, `"b64_json"`},
		{`"b64_json"`, mesh, `"b64_json"`}, {`"b64_json"`, provider, `"b64_json"`},
		{"", mesh, `"b64_json"`}, {"", host, `"b64_json"`}, {"", provider, ""},
	} {
		body := `{"model":"m","prompt":"x"}`
		if c.format != "" {
			body = `{"model":"m","prompt":"x","response_format":` + c.format + `}`
		}
		n := newNode(t)
		req := httptest.NewRequest("POST", "/v1/images/generations", strings.NewReader(body))
		tr := n.begin(httptest.NewRecorder(), req)
		tr.route, _ = routeOf(req.URL.Path)
		i, e := tr.prepare()
		if e != nil {
			t.Fatal(e)
		}
		call := i.callFor(catalog.Model{ID: "m", Name: "m"}, c.replica, &i.own)
		var sent struct {
			Format json.RawMessage `json:"response_format"`
		}
		if err := json.Unmarshal(call.Body, &sent); err != nil || string(sent.Format) != c.want {
			t.Errorf("asked for %q, of %+v: sent %s, want %s", c.format, c.replica.Provider, sent.Format, c.want)
		}
		tr.end()
	}
}
