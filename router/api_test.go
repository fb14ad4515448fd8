package router

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/router/relay"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

func TestCredentialsAreTakenFromWhereClientsPutThem(t *testing.T) {
	n := newNode(t)
	cases := map[string]struct {
		header http.Header
		status int
		code   string
	}{
		"bearer":            {http.Header{"Authorization": {"Bearer good"}}, 200, ""},
		"any case":          {http.Header{"Authorization": {"bEARER good"}}, 200, ""},
		"spaces":            {http.Header{"Authorization": {"Bearer   good "}}, 200, ""},
		"x-api-key":         {http.Header{"X-Api-Key": {"good"}}, 200, ""},
		"api-key":           {http.Header{"Api-Key": {"good"}}, 200, ""},
		"none":              {http.Header{}, 401, "invalid_api_key"},
		"basic":             {http.Header{"Authorization": {"Basic Z29vZDo="}}, 401, "invalid_api_key"},
		"bare":              {http.Header{"Authorization": {"good"}}, 401, "invalid_api_key"},
		"malformed":         {http.Header{"Authorization": {"Bearer sk-other"}}, 401, "invalid_api_key"},
		"unknown":           {http.Header{"Authorization": {"Bearer goodbye"}}, 401, "invalid_api_key"},
		"another scope":     {http.Header{"Authorization": {"Bearer good-metrics"}}, 403, "insufficient_scope"},
		"store is broken":   {http.Header{"X-Api-Key": {"broken-store"}}, 503, "keys_unavailable"},
		"query is no place": {http.Header{}, 401, "invalid_api_key"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			resp := send(t, n, "GET", "/v1/models?api_key=good&key=good", "", func(r *http.Request) { r.Header = c.header })
			if c.status == 200 {
				if got := text(t, resp); resp.StatusCode != 200 {
					t.Errorf("status %d: %s", resp.StatusCode, got)
				}
				return
			}
			e := wantError(t, resp, c.status, c.code)
			if c.status == 401 && (!strings.Contains(e.LLMGW.Hint, "llmgw keys new") || resp.Header.Get("WWW-Authenticate") == "") {
				t.Errorf("hint %q, header %v", e.LLMGW.Hint, resp.Header)
			}
			for _, secret := range c.header {
				if token := strings.TrimPrefix(secret[0], "Bearer "); strings.Contains(e.Error.Message, token) {
					t.Errorf("the credential is repeated: %s", e.Error.Message)
				}
			}
		})
	}
}

// TestEachRouteWantsItsScope walks all routes with each kind of key.
func TestEachRouteWantsItsScope(t *testing.T) {
	n := newNode(t)
	routes := map[string][4]int{ // without a key, infer, metrics, method
		"GET /healthz":              {200, 200, 200},
		"GET /readyz":               {200, 200, 200},
		"GET /metrics":              {401, 403, 200},
		"GET /v1/models":            {401, 200, 403},
		"GET /v1/models/m":          {401, 404, 403},
		"POST /v1/chat/completions": {401, 404, 403},
		"POST /v1/completions":      {401, 404, 403},
		"POST /v1/embeddings":       {401, 404, 403},
	}
	for route, want := range routes {
		method, path, _ := strings.Cut(route, " ")
		for i, key := range []string{"", "good", "good-metrics"} {
			resp := send(t, n, method, path, `{"model":"m"}`, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+key) })
			if resp.StatusCode != want[i] {
				t.Errorf("%s with key %q: %d, want %d", route, key, resp.StatusCode, want[i])
			}
		}
	}
}

func TestPathsAreTakenAsClientsWriteThem(t *testing.T) {
	entry, _ := pair(t, false, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
	for _, path := range []string{
		"/v1/chat/completions", "/chat/completions", "/v1/chat/completions/", "//v1/chat/completions", "/v1//chat/completions",
		"/v1/v1/chat/completions", "//chat//completions//", "/v1/chat/completions?api-version=1",
	} {
		if got := text(t, send(t, entry, "POST", path, chatBody)); got != chatPath {
			t.Errorf("%s: %q", path, got)
		}
	}
	for _, path := range []string{"/models", "//models", "/v1/models/", "/v1/v1/models"} {
		if resp := send(t, entry, "GET", path, ""); resp.StatusCode != 200 {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	n := newNode(t)
	for _, path := range []string{"/v1/nothing", "/v1", "/v1/v1/v1/models", "/v1/chat", "/v1/healthz/x"} {
		wantError(t, send(t, n, "POST", path, "{}"), 404, "unknown_url")
	}
	for route, allow := range map[string]string{
		"GET /v1/chat/completions": "POST", "DELETE /v1/models": "GET, HEAD", "PUT /v1/models/a/b": "GET, HEAD",
		"OPTIONS /v1/chat/completions": "POST", "POST /metrics": "GET, HEAD", "POST /healthz": "GET, HEAD",
	} {
		method, path, _ := strings.Cut(route, " ")
		resp := send(t, n, method, path, "")
		wantError(t, resp, 405, "method_not_allowed")
		if got := resp.Header.Get("Allow"); got != allow {
			t.Errorf("%s: Allow %q", route, got)
		}
	}
}

func TestOwnsTellsTheClientAPIFromTheRest(t *testing.T) {
	for path, want := range map[string]bool{
		"/v1/models": true, "/v1/anything": true, "//v1": true, "/models": true, "/models/a/b": true, "/chat/completions/": true,
		"/healthz": true, "/readyz": true, "/metrics": true, "/v1/metrics": true,
		"/": false, "": false, "/admin/v1/status": false, "/assets/app.js": false, "/v10/models": false, "/chat": false,
	} {
		if got := Owns(path); got != want {
			t.Errorf("%q: %v", path, got)
		}
	}
}

func TestBadBodies(t *testing.T) {
	n := newNode(t, func(c *Config) { c.BodyLimit = 1000 })
	n.catalog.set(view("m"))
	long := `{"model":"m","x":"` + strings.Repeat("x", 1000) + `"}`
	asGzip := func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }
	asZstd := func(r *http.Request) { r.Header.Set("Content-Encoding", "zstd") }
	longer := packed(`{"model":"m","x":"` + strings.Repeat("abcdefghij", 1<<20) + `"}`)
	cases := map[string]struct {
		body   string
		change func(*http.Request)
		status int
		code   string
		says   string
	}{
		"broken":           {`{"model":"m",}`, nil, 400, "invalid_json", "invalid JSON at byte 13: expected a key in quotes, found \"}\""},
		"empty":            {``, nil, 400, "invalid_json", "at byte 0"},
		"a list":           {`[]`, nil, 400, "invalid_json", "a JSON object"},
		"no model":         {`{}`, nil, 400, "missing_model", "model"},
		"null model":       {`{"model":null}`, nil, 400, "missing_model", "model"},
		"empty model":      {`{"model":""}`, nil, 400, "missing_model", "model"},
		"number for model": {`{"model":1}`, nil, 400, "invalid_type", `"model" must be a string`},
		"word for stream":  {`{"stream":"yes"}`, nil, 400, "invalid_type", `"stream" must be true or false`},
		"too large":        {long, nil, 413, "request_too_large", "1000 bytes"},
		"too large, in chunks": {long, func(r *http.Request) { r.ContentLength = -1; r.Body = io.NopCloser(strings.NewReader(long)) },
			413, "request_too_large", "1000 bytes"},
		"too large when unpacked": {string(zipped(long)), asGzip, 413, "request_too_large", "1000 bytes"},
		"too large of zstd":       {string(longer), asZstd, 413, "request_too_large", "1000 bytes"},
		"no zstd":                 {`{"model":"m"}`, asZstd, 400, "invalid_encoding", "decompressed"},
		"cut zstd":                {string(packed(`{"model":"m"}`)[:12]), asZstd, 400, "incomplete_body", "broke off"},
		"broken gzip":             {broken(zipped(`{"model":"m"}`)), asGzip, 400, "invalid_encoding", "decompressed"},
		"broken zstd":             {broken(packed(`{"model":"m"}`)), asZstd, 400, "invalid_encoding", "decompressed"},
		"no gzip":                 {`{"model":"m"}`, asGzip, 400, "invalid_encoding", "decompressed"},
		"cut gzip":                {string(zipped(`{"model":"m"}`)[:12]), asGzip, 400, "incomplete_body", "broke off"},
		"other encoding":          {`{}`, func(r *http.Request) { r.Header.Set("Content-Encoding", "br") }, 415, "unsupported_media_type", "br"},
		"multipart":               {`{}`, func(r *http.Request) { r.Header.Set("Content-Type", "multipart/form-data; boundary=x") }, 415, "unsupported_media_type", "multipart"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(*http.Request) {}
			}
			e := wantError(t, send(t, n, "POST", chatPath, c.body, c.change), c.status, c.code)
			if !strings.Contains(e.Error.Message, c.says) {
				t.Errorf("message is %q", e.Error.Message)
			}
		})
	}
}

func zipped(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, s)
	if err := errors.Join(err, w.Close()); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func packed(s string) []byte {
	e, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return e.EncodeAll([]byte(s), nil)
}

// broken is b with its checksum wrong.
func broken(b []byte) string {
	b = bytes.Clone(b)
	b[len(b)-1] ^= 1
	if len(b) > 4 && b[0] == 0x1f {
		b[len(b)-5] ^= 1 // gzip ends with the length
	}
	return string(b)
}

func TestBodiesOfAllSizesArriveWhole(t *testing.T) {
	entry, _ := pair(t, false, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n, " ", err, " ", r.Header.Get("Content-Encoding"))
	})
	for _, size := range []int{0, 1, firstPiece, trustedPiece - 40, trustedPiece, trustedPiece + 1, 5<<20 + 3} {
		body := `{"model":"m","x":"` + strings.Repeat("x", size) + `"}`
		want := fmt.Sprint(len(body), " ", error(nil), " ")
		ways := map[string]func(*http.Request){
			"length":  func(*http.Request) {},
			"chunks":  func(r *http.Request) { r.ContentLength = -1; r.Body = io.NopCloser(strings.NewReader(body)) },
			"expect":  func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
			"no type": func(r *http.Request) { r.Header.Del("Content-Type") },
			"form":    func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") },
			"zstd": func(r *http.Request) {
				z := packed(body)
				r.Header.Set("Content-Encoding", "ZSTD")
				r.ContentLength, r.Body = int64(len(z)), io.NopCloser(bytes.NewReader(z))
			},
			"gzip": func(r *http.Request) {
				z := zipped(body)
				r.Header.Set("Content-Encoding", "gzip")
				r.ContentLength, r.Body = int64(len(z)), io.NopCloser(bytes.NewReader(z))
			},
		}
		for name, way := range ways {
			if got := text(t, send(t, entry, "POST", chatPath, body, way)); got != want {
				t.Errorf("%d bytes by %s: %q, want %q", len(body), name, got, want)
			}
		}
	}
}

func TestBodiesOfANodeHaveABudget(t *testing.T) {
	busy, end := make(chan struct{}), make(chan struct{})
	entry, _ := pair(t, false, func(w http.ResponseWriter, _ *http.Request) {
		busy <- struct{}{}
		<-end
		event(w, done)
	})
	entry.bodies.limit = int64(len(chatBody)) + 10
	first := make(chan *http.Response)
	go func() { first <- send(t, entry, "POST", chatPath, chatBody) }()
	<-busy
	resp := send(t, entry, "POST", chatPath, chatBody)
	wantError(t, resp, 503, "overloaded")
	if resp.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	close(end)
	if got := text(t, <-first); got != done {
		t.Errorf("the first got %q", got)
	}
	go func() { <-busy }()
	if got := text(t, send(t, entry, "POST", chatPath, chatBody)); got != done {
		t.Errorf("the next got %q", got)
	}
}

// TestAnnouncedLengthTakesNoBudget: a header costs a client nothing.
func TestAnnouncedLengthTakesNoBudget(t *testing.T) {
	n := newNode(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	defer func() { _ = conn.Close() }()
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Length: %d\r\n\r\n{", chatPath, DefaultBodyLimit)
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatalf("send: %v", err)
	}
	eventually(t, "the body is being read", func() bool { return n.bodies.held.Load() > 0 })
	if got := n.bodies.held.Load(); got > trustedPiece {
		t.Errorf("%d bytes are held for one that came", got)
	}
}

func TestSlowBodyTimesOut(t *testing.T) {
	n := newNode(t, func(c *Config) {
		c.Limits = relay.DefaultLimits()
		c.Limits.Idle = 20 * time.Millisecond
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Length: 9\r\n\r\n{"); err != nil {
		t.Fatalf("send: %v", err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 408 ")) || !bytes.Contains(answer, []byte("request_timeout")) {
		t.Errorf("%v, got %q", err, answer)
	}
}

func TestModelsThatCannotServe(t *testing.T) {
	n := newNode(t)
	wantUnknown := func(says, hint string) {
		t.Helper()
		e := wantError(t, send(t, n, "POST", chatPath, `{"model":"gpt-4"}`), 404, "model_not_found")
		if !strings.Contains(e.Error.Message, says) || !strings.Contains(e.LLMGW.Hint, hint) || *e.Error.Param != "model" {
			t.Errorf("error is %+v", e)
		}
	}
	wantUnknown("no models yet", "llmgw pull")
	failed := view("Broken")
	failed.Problem = "crashed 3 times: ggml: out of memory"
	halted := view("halted", Replica{Peer: "b"})
	halted.Model.State = catalog.ModelStopped
	n.catalog.set(view("Org/Small:Q4"), failed, halted)
	wantUnknown("Broken, halted, Org/Small:Q4", "llmgw models")

	cases := map[string]struct{ model, code, says, hint string }{
		"not loaded": {"org/small:q4", "model_not_loaded", "llmgw load Org/Small:Q4", "llmgw load Org/Small:Q4"},
		"failed":     {"BROKEN", "model_not_loaded", "ggml: out of memory", "llmgw ps"},
		"stopped":    {"halted", "model_stopped", "stopped", "llmgw start halted"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			resp := send(t, n, "POST", chatPath, fmt.Sprintf(`{"model":%q}`, c.model))
			e := wantError(t, resp, 503, c.code)
			if !strings.Contains(e.Error.Message, c.says) || e.LLMGW.Hint != c.hint || resp.Header.Get("Retry-After") != "10" {
				t.Errorf("error %+v, Retry-After %q", e, resp.Header.Get("Retry-After"))
			}
		})
	}
}

func TestManyModelsAreListedInPart(t *testing.T) {
	n := newNode(t)
	var views []ModelView
	for i := range 30 {
		views = append(views, view(fmt.Sprintf("m%02d", i)))
	}
	n.catalog.set(views...)
	e := wantError(t, send(t, n, "POST", chatPath, `{"model":"x"}`), 404, "model_not_found")
	if !strings.Contains(e.Error.Message, "m19 and 10 more") {
		t.Errorf("message is %q", e.Error.Message)
	}
}

func TestModelListNamesEachModelOnce(t *testing.T) {
	n := newNode(t)
	aliased := view("Org/Small:Q4", Replica{Peer: "b", Node: "box-b", Context: 4096}, Replica{Peer: "c", Node: "box-c"})
	aliased.Model.Aliases, aliased.Model.Limits.MaxOutput = []string{"small"}, 512
	n.catalog.set(view("zeta"), aliased)
	var got struct {
		Object string
		Data   []map[string]any
	}
	if err := json.Unmarshal([]byte(text(t, send(t, n, "GET", "/v1/models", ""))), &got); err != nil {
		t.Fatalf("decode: %v", err)
	}
	want := []map[string]any{
		{"id": "Org/Small:Q4", "object": "model", "created": 0.0, "owned_by": "llmgw",
			"llmgw": map[string]any{"state": "ready", "replicas": 2.0, "aliases": []any{"small"},
				"context": 4096.0, "max_output_tokens": 512.0, "nodes": []any{"box-b", "box-c"}}},
		{"id": "zeta", "object": "model", "created": 0.0, "owned_by": "llmgw",
			"llmgw": map[string]any{"state": "not_loaded", "replicas": 0.0, "hint": "llmgw load zeta"}},
	}
	if diff := cmp.Diff(want, got.Data); diff != "" || got.Object != "list" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	for _, path := range []string{"/v1/models/Org/Small:Q4", "/v1/models/org%2Fsmall:q4", "/models/SMALL/", "/v1/models/org%2Fsmall%3Aq4"} {
		var one map[string]any
		if err := json.Unmarshal([]byte(text(t, send(t, n, "GET", path, ""))), &one); err != nil || one["id"] != "Org/Small:Q4" {
			t.Errorf("%s: %v, %v", path, one, err)
		}
	}
	wantError(t, send(t, n, "GET", "/v1/models/nope", ""), 404, "model_not_found")
}

func TestEmptyModelListSaysWhatToType(t *testing.T) {
	n := newNode(t)
	got := text(t, send(t, n, "GET", "/v1/models", ""))
	if !strings.Contains(got, `"data":[]`) || !strings.Contains(got, "llmgw pull") {
		t.Errorf("list is %s", got)
	}
}

func TestRequestIDsAreEchoedOnlyIfHarmless(t *testing.T) {
	n := newNode(t)
	for id, kept := range map[string]bool{
		"abc-1_2.Z": true, strings.Repeat("x", 128): true, strings.Repeat("x", 129): false, "a b": false, "ä": false, "": false,
	} {
		resp := send(t, n, "GET", "/healthz", "", func(r *http.Request) { r.Header.Set("X-Request-Id", id) })
		got := resp.Header.Get("X-Request-Id")
		if (got == id) != kept || got == "" {
			t.Errorf("%q gave %q", id, got)
		}
	}
}

// TestRemovedBoxAnswersNoRequest: who has a key hears why, a stranger does not,
// and what an operator looks at stays open.
func TestRemovedBoxAnswersNoRequest(t *testing.T) {
	n := newNode(t, func(c *Config) { c.Serving = func() error { return errors.New("it was removed by box-a: sold") } })
	for _, tc := range []struct{ method, path, body string }{
		{"GET", "/v1/models", ""},
		{"POST", "/v1/chat/completions", `{"model":"m","messages":[]}`},
		{"POST", "/v1/embeddings", `{"model":"m","input":"x"}`},
	} {
		resp := send(t, n, tc.method, tc.path, tc.body)
		if got := text(t, resp); resp.StatusCode != 503 || !strings.Contains(got, "node_not_serving") || !strings.Contains(got, "sold") {
			t.Errorf("%s with a key: %d %s", tc.path, resp.StatusCode, got)
		}
		resp = send(t, n, tc.method, tc.path, tc.body, func(r *http.Request) { r.Header.Del("Authorization") })
		if got := text(t, resp); resp.StatusCode != 401 || strings.Contains(got, "sold") {
			t.Errorf("%s without: %d %s", tc.path, resp.StatusCode, got)
		}
	}
	if resp := send(t, n, "GET", "/healthz", ""); resp.StatusCode != 200 {
		t.Errorf("health: %d", resp.StatusCode)
	}
}

func TestHealthIsOneWord(t *testing.T) {
	var down string
	n := newNode(t, func(c *Config) { c.Ready = func() string { return down } })
	if got := text(t, send(t, n, "GET", "/readyz", "")); got != "ready\n" {
		t.Errorf("ready: %q", got)
	}
	down = "starting"
	if resp := send(t, n, "GET", "/readyz", ""); resp.StatusCode != 503 || text(t, resp) != "starting\n" {
		t.Errorf("not ready: %d", resp.StatusCode)
	}
	if resp := send(t, n, "GET", "/healthz", ""); resp.StatusCode != 200 || text(t, resp) != "ok\n" {
		t.Errorf("health: %d", resp.StatusCode)
	}
}
