package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// start runs a server inside the test.
func start(t *testing.T, cfg Config) (*Server, string) {
	t.Helper()
	s := New(cfg)
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	return s, srv.URL
}

func params(t *testing.T, text string) Params {
	t.Helper()
	p, err := ParseParams(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func post(t *testing.T, url, body string) (int, map[string]any) {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var v map[string]any
	if err := json.NewDecoder(res.Body).Decode(&v); err != nil {
		t.Fatalf("status %d: %v", res.StatusCode, err)
	}
	return res.StatusCode, v
}

type event struct {
	Choices []struct {
		FinishReason *string `json:"finish_reason"`
		Text         string
		Delta        struct{ Role, Content string }
	}
	Usage *struct {
		CompletionTokens int `json:"completion_tokens"`
	}
	Model string
}

// events reads a stream to its end; ended tells whether [DONE] came.
func events(t *testing.T, r io.Reader) (list []event, ended bool) {
	t.Helper()
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return list, true
		}
		var e event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("event %q: %v", data, err)
		}
		list = append(list, e)
	}
	return list, false
}

func TestChatStreamHasOneEventPerToken(t *testing.T) {
	for _, pace := range []string{"0", "1", `1,"per_interval":4`} {
		t.Run("interval "+pace, func(t *testing.T) {
			s, url := start(t, Config{Alias: `a/b:"c`, Params: params(t, `{"llmgw_sim":1,"tokens":9,"interval_ms":`+pace+`}`)})
			res, err := http.Post(url+"/v1/chat/completions", "application/json",
				strings.NewReader(`{"messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			list, ended := events(t, res.Body)
			if !ended || len(list) != 1+9+1+1 {
				t.Fatalf("%d events, ended %v", len(list), ended)
			}
			text := ""
			for _, e := range list[:10] {
				text += e.Choices[0].Delta.Content
			}
			if text != Text(9) || list[0].Choices[0].Delta.Role != "assistant" || list[3].Model != `a/b:"c` {
				t.Errorf("text %q, first %+v", text, list[0])
			}
			if fr := list[10].Choices[0].FinishReason; fr == nil || *fr != "stop" {
				t.Errorf("finish reason %v", fr)
			}
			if u := list[11].Usage; u == nil || u.CompletionTokens != 9 || len(list[11].Choices) != 0 {
				t.Errorf("usage event %+v", list[11])
			}
			want := Stats{Completed: 1, Predicted: 9}
			until(t, "stream counted as complete", func() bool { return s.Stats() == want })
		})
	}
}

// flushes counts what goes out in one piece.
type flushes struct {
	httptest.ResponseRecorder
	n int
}

func (f *flushes) Flush() { f.n++ }

func TestTokensThatComeTogetherAreOnePiece(t *testing.T) {
	for together, want := range map[int]int{0: 10, 1: 10, 4: 3, 9: 2, 10: 1} { // the end goes with what is left, else alone
		s := New(Config{Params: params(t, fmt.Sprintf(`{"llmgw_sim":1,"tokens":9,"interval_ms":1,"per_interval":%d}`, together))})
		w := &flushes{ResponseRecorder: *httptest.NewRecorder()}
		s.Handler().ServeHTTP(w, httptest.NewRequest("POST", "/v1/completions", strings.NewReader(`{"prompt":"hi","stream":true}`)))
		if w.n != want {
			t.Errorf("%d together: %d pieces, want %d", together, w.n, want)
		}
	}
}

func TestCompletionStreamAndWhole(t *testing.T) {
	_, url := start(t, Config{Params: params(t, `{"llmgw_sim":1,"tokens":5}`)})
	res, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"hi","stream":true,"max_tokens":3}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	list, ended := events(t, res.Body)
	text := ""
	for _, e := range list {
		text += e.Choices[0].Text
	}
	if last := list[len(list)-1]; !ended || text != Text(3) || *last.Choices[0].FinishReason != "length" || last.Usage != nil {
		t.Errorf("ended %v, text %q, last %+v", ended, text, last)
	}
	status, v := post(t, url+"/v1/completions", `{"prompt":"hi"}`)
	choice := v["choices"].([]any)[0].(map[string]any)
	if status != 200 || choice["text"] != Text(5) || choice["finish_reason"] != "stop" {
		t.Errorf("status %d, %v", status, v)
	}
}

func TestAnswersAsLlamaServerDoes(t *testing.T) {
	_, url := start(t, Config{Context: 10, Params: params(t, `{"llmgw_sim":1,"tokens":64}`)})
	for _, tc := range []struct {
		name, path, body string
		status           int
		kind             string
	}{
		{"broken JSON", "/v1/chat/completions", `{"messages":[`, 400, "invalid_request_error"},
		{"no messages", "/v1/chat/completions", `{}`, 400, "invalid_request_error"},
		{"no prompt", "/v1/completions", `{"prompt":null}`, 400, "invalid_request_error"},
		{"prompt over the context", "/v1/completions", `{"prompt":"` + strings.Repeat("x", 80) + `"}`, 400, "exceed_context_size_error"},
		{"embeddings off", "/v1/embeddings", `{"input":"x"}`, 501, "not_supported_error"},
		{"unknown route", "/v1/nothing", `{}`, 404, "not_found_error"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, v := post(t, url+tc.path, tc.body)
			if e, _ := v["error"].(map[string]any); status != tc.status || e["type"] != tc.kind {
				t.Errorf("status %d, %v", status, v)
			}
		})
	}
	t.Run("answer ends where the context does", func(t *testing.T) {
		_, v := post(t, url+"/v1/completions", `{"prompt":"abcd"}`)
		if u := v["usage"].(map[string]any); u["total_tokens"] != 10.0 {
			t.Errorf("usage %v", u)
		}
	})
}

func TestKeyGuardsAllButHealthAndModels(t *testing.T) {
	_, url := start(t, Config{Key: "sesame", Embeddings: true})
	for _, tc := range []struct {
		path, key string
		want      int
	}{
		{"/health", "", 200}, {"/v1/models", "", 200},
		{"/props", "", 401}, {"/metrics", "wrong", 401}, {"/slots", "", 401}, {"/nothing", "", 401},
		{"/props", "sesame", 200}, {"/metrics", "sesame", 200}, {"/slots", "sesame", 200},
	} {
		req, _ := http.NewRequest(http.MethodGet, url+tc.path, nil)
		if tc.key != "" {
			req.Header.Set("Authorization", "Bearer "+tc.key)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != tc.want {
			t.Errorf("%s with key %q: %d, want %d", tc.path, tc.key, res.StatusCode, tc.want)
		}
	}
}

// until polls a condition that another goroutine brings about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestClientThatLeavesIsCountedAndFreesItsSlot(t *testing.T) {
	s, url := start(t, Config{Params: params(t, `{"llmgw_sim":1,"tokens":100000,"interval_ms":5,"slots":1}`)})
	ctx, leave := context.WithCancel(context.Background())
	ask := func(ctx context.Context, stream bool) {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions",
			strings.NewReader(fmt.Sprintf(`{"prompt":"x","stream":%v}`, stream)))
		if res, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}
	go ask(ctx, true)
	until(t, "stream runs", func() bool { return s.Stats().Running == 1 })
	waiting, giveUp := context.WithCancel(context.Background())
	go ask(waiting, false)
	until(t, "second request waits for the slot", func() bool { return s.Stats().Deferred == 1 })
	giveUp()
	until(t, "waiting request left", func() bool { st := s.Stats(); return st.Deferred == 0 && st.Aborted == 1 })
	leave()
	until(t, "stream ended", func() bool { st := s.Stats(); return st.Running == 0 && st.Aborted == 2 })
	if status, _ := post(t, url+"/v1/completions", `{"prompt":"x","max_tokens":1}`); status != 200 {
		t.Errorf("slot was not freed: status %d", status)
	}
}

func TestMidStreamFaultCutsTheConnection(t *testing.T) {
	s, url := start(t, Config{Params: params(t, `{"llmgw_sim":1,"tokens":8,"fail":"mid_stream"}`)})
	res, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"x","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil || bytes.Contains(b, []byte("[DONE]")) || !bytes.Contains(b, []byte("token-3")) {
		t.Errorf("read %q, error %v", b, err)
	}
	until(t, "abort counted", func() bool { return s.Stats().Aborted == 1 })
}

func TestEmbeddingsInBothEncodings(t *testing.T) {
	_, url := start(t, Config{Embeddings: true, Params: params(t, `{"llmgw_sim":1,"embedding_dim":16}`)})
	_, v := post(t, url+"/v1/embeddings", `{"input":["a","b",[1,2]]}`)
	data := v["data"].([]any)
	if len(data) != 3 {
		t.Fatalf("%d vectors", len(data))
	}
	var plain []float32
	sum := 0.0
	for _, x := range data[0].(map[string]any)["embedding"].([]any) {
		plain = append(plain, float32(x.(float64)))
		sum += x.(float64) * x.(float64)
	}
	if len(plain) != 16 || math.Abs(sum-1) > 1e-5 {
		t.Errorf("%d numbers, length %f", len(plain), sum)
	}
	_, v = post(t, url+"/v1/embeddings", `{"input":"a","encoding_format":"base64"}`)
	raw, err := base64.StdEncoding.DecodeString(v["data"].([]any)[0].(map[string]any)["embedding"].(string))
	if err != nil {
		t.Fatal(err)
	}
	packed := make([]float32, len(raw)/4)
	if _, err := binary.Decode(raw, binary.LittleEndian, packed); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain, packed); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{`{}`, `{"input":[]}`, `{"input":7}`, `{"input":[["a"],{}]}`, `{"input":"a","encoding_format":"x"}`} {
		if status, _ := post(t, url+"/v1/embeddings", bad); status != 400 {
			t.Errorf("%s: status %d", bad, status)
		}
	}
}

func TestMetricsHaveLlamaNames(t *testing.T) {
	s, url := start(t, Config{Params: params(t, `{"llmgw_sim":1,"tokens":3}`)})
	post(t, url+"/v1/completions", `{"prompt":"x"}`)
	until(t, "request counted", func() bool { return s.Stats().Completed == 1 })
	res, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	for _, line := range []string{
		"llamacpp:tokens_predicted_total 3", "llamacpp:requests_processing 0", "llamacpp:requests_deferred 0",
		"llmgw_sim_streams_aborted_total 0", "llmgw_sim_streams_running 0", "llmgw_sim_streams_completed_total 1",
	} {
		if !strings.Contains(string(b), line+"\n") {
			t.Errorf("%q is missing in\n%s", line, b)
		}
	}
}

func TestParamsAreChecked(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON": `GGUF`, "other version": `{"llmgw_sim":2}`, "no version": `{}`,
		"unknown field": `{"llmgw_sim":1,"token":3}`, "unknown fault": `{"llmgw_sim":1,"fail":"often"}`,
		"negative": `{"llmgw_sim":1,"tokens":-1}`, "too many": `{"llmgw_sim":1,"slots":70000}`,
		"no dimension": `{"llmgw_sim":1,"embedding_dim":0}`, "wrong type": `{"llmgw_sim":1,"load_ms":"1"}`,
	} {
		if _, err := ParseParams(strings.NewReader(text)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if p := params(t, `{"llmgw_sim":1}`); p.Tokens != 64 || p.EmbeddingDim != 384 {
		t.Errorf("defaults %+v", p)
	}
}

func TestMainEndsAsItsModelFileSays(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		args       []string
		code       int
		says       string
	}{
		{"no file", "", nil, 1, "error loading model"},
		{"bad file", `{"llmgw_sim":7}`, nil, 1, "llmgw_sim is 7"},
		{"failing load", `{"llmgw_sim":1,"load_ms":20,"fail":"load"}`, nil, 1, "exiting due to model loading error"},
		{"exit after load", `{"llmgw_sim":1,"fail":"exit","exit_after_ms":1}`, nil, 134, "fatal error"},
		{"unknown flag", `{"llmgw_sim":1}`, []string{"--nope"}, 2, "nope"},
		{"port in use or not allowed", `{"llmgw_sim":1}`, []string{"--host", "256.0.0.1"}, 1, "couldn't bind"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model")
			if tc.file != "" {
				if err := os.WriteFile(path, []byte(tc.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out, errs bytes.Buffer
			code := Main(t.Context(), append([]string{"--model", path, "--port", "0"}, tc.args...), nil, &out, &errs)
			if code != tc.code || !strings.Contains(errs.String(), tc.says) {
				t.Errorf("status %d, stderr %q", code, errs.String())
			}
		})
	}
}

func TestMainLoadsServesAndEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model")
	if err := os.WriteFile(path, []byte(`{"llmgw_sim":1,"load_ms":40}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- Main(ctx, []string{"--model", path, "--port", "0", "--alias", "m"}, []string{"LLAMA_API_KEY=k"}, w, io.Discard)
		w.Close()
	}()
	lines := bufio.NewScanner(r)
	lines.Scan()
	url := strings.TrimPrefix(lines.Text(), "listening on ")
	res, err := http.Get(url + "/health")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 503 {
		t.Errorf("health while loading: %d", res.StatusCode)
	}
	for lines.Scan() && lines.Text() != "model loaded" {
	}
	if res, err = http.Get(url + "/health"); err != nil || res.StatusCode != 200 {
		t.Fatalf("health after load: %v %v", res, err)
	}
	res.Body.Close()
	stop()
	for lines.Scan() {
	}
	if c := <-code; c != 0 {
		t.Errorf("status %d", c)
	}
}

func FuzzParseParams(f *testing.F) {
	f.Add([]byte(`{"llmgw_sim":1,"tokens":64}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParseParams(bytes.NewReader(b))
		if err == nil && (p.Tokens < 0 || p.Tokens > maxTokens || p.EmbeddingDim < 1) {
			t.Errorf("took %+v", p)
		}
	})
}

func TestPicturesAndSpeech(t *testing.T) {
	srv := httptest.NewServer(New(Config{}).Handler())
	defer srv.Close()
	for body, want := range map[string]int{
		`{"prompt":"x","n":3,"response_format":"b64_json"}`: 200, `{"prompt":"x","size":"16x8"}`: 200, `{"prompt":"x","size":"auto"}`: 200,
		`{"prompt":""}`: 400, `{"prompt":"x","n":0}`: 400, `{"prompt":"x","n":11}`: 400, `{"prompt":"x","size":"9999x1"}`: 400, `{"prompt":"x","size":"big"}`: 400,
	} {
		status, answer := post(t, srv.URL+"/v1/images/generations", body)
		if data, _ := answer["data"].([]any); status != want || want == 200 && len(data) == 0 {
			t.Errorf("%s: %d, %v", body, status, answer)
		}
	}
	_, answer := post(t, srv.URL+"/v1/images/generations", `{"prompt":"x","size":"16x8","response_format":"b64_json"}`)
	raw, err := base64.StdEncoding.DecodeString(answer["data"].([]any)[0].(map[string]any)["b64_json"].(string))
	if err != nil {
		t.Fatal(err)
	}
	if img, err := png.Decode(bytes.NewReader(raw)); err != nil || img.Bounds().Dx() != 16 || img.Bounds().Dy() != 8 {
		t.Errorf("%v, %v", img, err)
	}
	if !bytes.Equal(picture("x0", 16, 8), raw) {
		t.Error("the same prompt gives another picture")
	}
	for body, want := range map[string]int{`{"input":"hi"}`: 200, `{"input":"hi","response_format":"wav"}`: 200, `{"input":""}`: 400, `{"input":"hi","response_format":"mp3"}`: 400} {
		resp, err := http.Post(srv.URL+"/v1/audio/speech", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		sound, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want || want == 200 && (len(sound) != 44+2*2*letterTime || !bytes.HasPrefix(sound, []byte("RIFF"))) {
			t.Errorf("%s: %d, %d bytes", body, resp.StatusCode, len(sound))
		}
	}
}
