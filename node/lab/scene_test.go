package lab

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"llmgw/mesh/catalog"

	"github.com/google/go-cmp/cmp"
)

//go:embed testdata/openai_client.py
var openaiClient string

// readyWithin covers the load of SmolLM2 on a busy machine; it takes 1-2 s.
const readyWithin = 90 * time.Second

// scene is the usual stage: box a to ask, box b to serve, and a laptop that
// runs no daemon.
type scene struct {
	*Lab
	a, b, laptop *Box
}

// joinedScene starts two boxes and joins b to the mesh of a by token.
func joinedScene(t *testing.T) scene {
	t.Helper()
	s := newScene(t)
	s.a.Start()
	s.b.Start()
	s.b.Join(s.a)
	return s
}

func newScene(t testing.TB) scene {
	t.Helper()
	l := New(t)
	return scene{Lab: l, a: l.Box("a"), b: l.Box("b"), laptop: l.Box("laptop")}
}

// key makes an API key on box a.
func (s scene) key() string {
	s.tb.Helper()
	return s.a.CLI("keys", "new", "laptop")
}

// atA and atB ask from the laptop.
func (s scene) atA(key string) *API { return s.laptop.API(s.a, key) }
func (s scene) atB(key string) *API { return s.laptop.API(s.b, key) }

// serveSmolLM2 loads the real model on b by a command on a. Only b has the
// engine and the weights.
func (s scene) serveSmolLM2() {
	s.tb.Helper()
	Warm(s.tb)
	s.b.CLI("engines", "install", "llamacpp")
	s.b.CLI("pull", SmolLM2, "--as", "smollm2", "--embeddings")
	s.load("smollm2", readyWithin)
}

// serveSim loads a simulated model on b by a command on a.
func (s scene) serveSim(name string, sim Sim) {
	s.tb.Helper()
	s.b.PullSim(name, sim)
	s.load(name, 15*time.Second)
}

// load loads from a and waits until a knows that b serves.
func (s scene) load(model string, within time.Duration) {
	s.tb.Helper()
	Eventually(s.tb, 5*time.Second, "a knows "+model, func() (bool, string) {
		r := s.a.Try("load", model, "--node", "b")
		return r.Code == 0, r.String()
	})
	r := s.a.AwaitReplica(model, string(catalog.ReplicaReady), within)
	if r.NodeName != "b" {
		s.tb.Fatalf("%s is served by %q, want b", model, r.NodeName)
	}
}

// seconds bounds one step of a test.
func seconds(t testing.TB, n int) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(n)*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// stream opens a chat stream at an API or fails the test.
func stream(t testing.TB, ctx context.Context, at *API, model string, more map[string]any) *Stream {
	t.Helper()
	st, err := at.Stream(ctx, "/v1/chat/completions", Chat(model, "Tell a long story.", true, more))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// read takes n events from a stream or fails the test.
func read(t testing.TB, st *Stream, n int) {
	t.Helper()
	for i := range n {
		if _, err := st.Next(); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
}

// story is what the client program printed.
type story struct {
	Models           []string `json:"models"`
	Chat             string   `json:"chat"`
	ChatTokens       int      `json:"chat_tokens"`
	Stream           string   `json:"stream"`
	StreamParts      int      `json:"stream_parts"`
	StreamTokens     int      `json:"stream_tokens"`
	StreamFinish     string   `json:"stream_finish"`
	Completion       string   `json:"completion"`
	Embeddings       []int    `json:"embeddings"`
	EmbeddingsRepeat bool     `json:"embeddings_repeat"`
	EmbeddingsDiffer bool     `json:"embeddings_differ"`
	UnknownModel     []any    `json:"unknown_model"`
	WrongKey         []any    `json:"wrong_key"`
}

// checkPython runs the openai package on the laptop against a.
func (s scene) checkPython(t *testing.T, key string) {
	t.Helper()
	script := s.File("openai_client.py", openaiClient, 0o644)
	r, err := s.laptop.Run(seconds(t, 180), Python(t), script, s.a.URL()+"/v1", key, "smollm2")
	if err != nil || r.Code != 0 {
		t.Fatalf("the openai client failed: %v\n%s", err, r)
	}
	var got story
	if err := json.Unmarshal([]byte(r.Out()), &got); err != nil {
		t.Fatalf("%v\n%s", err, r)
	}
	t.Logf("%+v", got)
	const width = 576 // SmolLM2-135M's embedding length
	want := got       // what the model says is its own affair
	want.Models, want.Embeddings = []string{"smollm2"}, []int{width, width, width}
	want.EmbeddingsRepeat, want.EmbeddingsDiffer = true, true
	want.UnknownModel = []any{"NotFoundError", float64(404), "model_not_found"}
	want.WrongKey = []any{"AuthenticationError", float64(401)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the client saw (-want +got):\n%s", diff)
	}
	if got.Chat == "" || got.Chat != got.Stream || got.Completion == "" {
		t.Errorf("answers: chat %q, stream %q, completion %q", got.Chat, got.Stream, got.Completion)
	}
	if got.StreamParts < 2 || got.ChatTokens < 2 || got.StreamTokens != got.ChatTokens || got.StreamFinish == "" {
		t.Errorf("the stream came in %d parts, %d tokens (whole: %d), finish %q", got.StreamParts, got.StreamTokens, got.ChatTokens, got.StreamFinish)
	}
}

// checkCurl does the same by curl, as the README tells people.
func (s scene) checkCurl(t *testing.T, key string) {
	t.Helper()
	curl := func(args ...string) Result {
		t.Helper()
		r, err := s.laptop.Run(seconds(t, 60), append([]string{"curl", "-sS", "-N", "-H", "Authorization: Bearer " + key}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	post := func(path, body string) Result {
		t.Helper()
		return curl("--fail-with-body", "-H", "Content-Type: application/json", "-d", body, s.a.URL()+path)
	}
	for name, tc := range map[string]struct {
		r     Result
		wants []string
	}{
		"list":       {curl("--fail-with-body", s.a.URL()+"/v1/models"), []string{`"object":"list"`, `"smollm2"`}},
		"chat":       {post("/v1/chat/completions", `{"model":"smollm2","max_tokens":8,"messages":[{"role":"user","content":"Hi"}]}`), []string{`"chat.completion"`, `"content"`}},
		"stream":     {post("/v1/chat/completions", `{"model":"smollm2","max_tokens":8,"stream":true,"messages":[{"role":"user","content":"Hi"}]}`), []string{"data: {", `"chat.completion.chunk"`, "data: [DONE]"}},
		"embeddings": {post("/v1/embeddings", `{"model":"smollm2","input":"a cat"}`), []string{`"embedding"`}},
		"IPv6":       {curl("--fail-with-body", "http://["+s.a.IP6().String()+"]:8770/v1/models"), []string{`"smollm2"`}},
	} {
		if tc.r.Code != 0 {
			t.Errorf("%s: %s", name, tc.r)
		}
		plain := strings.ReplaceAll(tc.r.Stdout, `": `, `":`)
		for _, want := range tc.wants {
			if !strings.Contains(plain, want) {
				t.Errorf("%s lacks %s:\n%s", name, want, tc.r)
			}
		}
	}
}

// checkOnlyBServes looks at the processes themselves.
func (s scene) checkOnlyBServes(t *testing.T) {
	t.Helper()
	if n := len(s.b.Processes(LlamaServer)); n != 1 {
		t.Errorf("%d llama-servers on b", n)
	}
	if n := len(s.a.Processes(LlamaServer)); n != 0 {
		t.Errorf("%d llama-servers on a", n)
	}
}
