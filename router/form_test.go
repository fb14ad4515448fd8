package router

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"llmgw/mesh/catalog"
)

// upload makes a form whose file stands before its fields.
func upload(t *testing.T, model string) (body, kind string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	f, err := w.CreateFormFile("file", "a.wav")
	if err == nil {
		_, err = f.Write(bytes.Repeat([]byte("RIFF\r\n--\x00"), 20_000))
	}
	if err == nil {
		err = w.WriteField("model", model)
	}
	if err == nil {
		err = w.WriteField("response_format", "json")
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), w.FormDataContentType()
}

func TestFormsPassUnchangedWhereverTheModelStands(t *testing.T) {
	bothWays(t, func(t *testing.T, remote bool) {
		type got struct{ path, kind, body string }
		asked := make(chan got, 1)
		entry, _ := pair(t, remote, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			asked <- got{r.URL.Path, r.Header.Get("Content-Type"), string(body)}
			_, _ = io.WriteString(w, `{"text":"hello"}`)
		})
		v, _ := entry.catalog.Resolve("m")
		v.Model.Aliases = []string{"whisper-1"}
		entry.catalog.set(v)
		for _, name := range []string{"m", "M", "whisper-1"} {
			body, kind := upload(t, name)
			want := got{"/v1/audio/transcriptions", kind, body}
			if name == "whisper-1" {
				want.body = strings.Replace(body, "\r\nwhisper-1\r\n", "\r\nm\r\n", 1)
			}
			resp := send(t, entry, "POST", "/v1/audio/transcriptions", body, func(r *http.Request) { r.Header.Set("Content-Type", kind) })
			if said := text(t, resp); said != `{"text":"hello"}` {
				t.Fatalf("status %d, %s", resp.StatusCode, said)
			}
			if g := <-asked; g != want {
				t.Errorf("%s: the engine got %s, %s, %d bytes", name, g.path, g.kind, len(g.body))
			}
		}
	})
}

func TestBrokenFormsAreRefused(t *testing.T) {
	entry, _ := pair(t, false, func(http.ResponseWriter, *http.Request) { t.Error("the engine was asked") })
	good, kind := upload(t, "m")
	none, noneKind := upload(t, "none")
	for name, c := range map[string]struct {
		path, body, kind string
		status           int
		code             string
	}{
		"JSON":             {"/v1/audio/transcriptions", `{"model":"m"}`, "application/json", 415, "unsupported_media_type"},
		"a form elsewhere": {chatPath, good, kind, 415, "unsupported_media_type"},
		"cut":              {"/v1/audio/transcriptions", good[:len(good)-10], kind, 400, "invalid_multipart"},
		"no boundary":      {"/v1/audio/transcriptions", good, "multipart/form-data", 400, "invalid_multipart"},
		"another boundary": {"/v1/audio/transcriptions", good, "multipart/form-data; boundary=other", 400, "invalid_multipart"},
		"no model":         {"/v1/images/edits", strings.Replace(good, `name="model"`, `name="other"`, 1), kind, 400, "missing_model"},
		"unknown model":    {"/v1/audio/translations", none, noneKind, 404, "model_not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			resp := send(t, entry, "POST", c.path, c.body, func(r *http.Request) { r.Header.Set("Content-Type", c.kind) })
			wantError(t, resp, c.status, c.code)
		})
	}
	lacking(entry, catalog.AbilityAudio)
	resp := send(t, entry, "POST", "/v1/audio/transcriptions", good, func(r *http.Request) { r.Header.Set("Content-Type", kind) })
	wantError(t, resp, 400, "unsupported_by_model")
}

func TestSpeechIsPassedAsItComes(t *testing.T) {
	sound := string(bytes.Repeat([]byte{0xff, 0xfb, 0x90, 0x00, '"', 'u', 's', 'a', 'g', 'e', '"', ':', '{'}, 5000))
	entry, _ := pair(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "audio/mpeg")
		for piece := range strings.SplitAfterSeq(sound, "\x00") {
			_, _ = io.WriteString(w, piece)
		}
	})
	resp := send(t, entry, "POST", "/v1/audio/speech", `{"model":"m","input":"hi"}`)
	if got := text(t, resp); got != sound || resp.Header.Get("Content-Type") != "audio/mpeg" {
		t.Errorf("%d bytes of %s", len(got), resp.Header.Get("Content-Type"))
	}
}
