package engines

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"llmgw/mesh/catalog"
)

func TestAdaptersAreRegisteredUnderTheirNames(t *testing.T) {
	for name, a := range Adapters() {
		if a.Name() != name || len(a.Formats()) == 0 || a.Program().Name == "" {
			t.Errorf("%s: name %q, formats %v, program %v", name, a.Name(), a.Formats(), a.Program())
		}
		p := a.Probe()
		if p.Health == nil || p.Models == nil || p.Props == nil || p.Token == nil {
			t.Errorf("%s: probe is incomplete", name)
		}
	}
}

func TestSimCommand(t *testing.T) {
	s := shard(func(s *catalog.Shard) { s.Profile.Engine, s.Profile.Embeddings = catalog.EngineSim, true })
	at := endpoint
	at.Binary = "/bin/llmgw"
	got, err := Sim{}.Commands(s, at)
	if err != nil {
		t.Fatal(err)
	}
	want := []Command{{
		Path: "/bin/llmgw",
		Args: []string{"engine-sim", "--model", "/weights/file", "--alias", "Org/Smol:q4", "--host", "127.0.0.1",
			"--port", "8791", "--ctx-size", "2048", "--embeddings",
			"--kv-events", "/run/x/kv.sock", "--kv-replay", "/run/x/kv-replay.sock"},
		Env: []string{"LLAMA_API_KEY=run-key"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	at.RunDir = "/" + strings.Repeat("d", maxSocketPath)
	if got, err = (Sim{}).Commands(s, at); err != nil || slices.Contains(got[0].Args, "--kv-events") {
		t.Errorf("sockets whose paths are too long: %v %v", got, err)
	}
	s.Profile.Args = []string{"--fast"}
	if _, err := (Sim{}).Commands(s, at); !errors.Is(err, ErrProfile) {
		t.Errorf("flag was taken: %v", err)
	}
}

func TestHealthIsReadFromTheBody(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int
		body   string
		want   Health
	}{
		{"ok", 200, `{"status":"ok"}`, HealthOK},
		{"loading", 503, `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`, HealthLoading},
		{"200 of somebody else", 200, `hello`, HealthUnknown},
		{"200 with another status", 200, `{"status":"loading model"}`, HealthUnknown},
		{"empty 200", 200, ``, HealthUnknown},
		{"broken", 500, `{"error":{"message":"boom"}}`, HealthBroken},
		{"other 503", 503, `{"error":{"message":"no slot"}}`, HealthBroken},
		{"ok in a 503", 503, `{"status":"ok"}`, HealthBroken},
		{"not found", 404, `{"error":{"message":"File Not Found"}}`, HealthUnknown},
	} {
		if got := llamaHealth(tc.status, []byte(tc.body)); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestTokenRequestFitsTheModel(t *testing.T) {
	for _, tc := range []struct {
		architecture string
		embeddings   bool
		path         string
		good         string
	}{
		{"llama", false, "/v1/completions", `{"choices":[{"text":"a"}]}`},
		{"llama", true, "/v1/completions", `{"choices":[{"text":"a"}]}`},
		{"nomic-bert", true, "/v1/embeddings", `{"data":[{"embedding":[1]}]}`},
	} {
		req := openAIToken(shard(func(s *catalog.Shard) {
			s.Model.Source.Architecture, s.Profile.Embeddings = tc.architecture, tc.embeddings
		}))
		if req.Path != tc.path {
			t.Errorf("%s: %s", tc.architecture, req.Path)
		}
		if err := req.Check(200, []byte(tc.good)); err != nil {
			t.Errorf("%s: %v", tc.architecture, err)
		}
		for _, bad := range []string{``, `{}`, `{"choices":[],"data":[]}`, `{"choices":{},"data":1}`, `[]`} {
			if req.Check(200, []byte(bad)) == nil {
				t.Errorf("%s: %q was taken", tc.architecture, bad)
			}
		}
		if req.Check(500, []byte(tc.good)) == nil {
			t.Errorf("%s: status 500 was taken", tc.architecture)
		}
	}
}

func TestPropsAndModelsAreRead(t *testing.T) {
	p, err := llamaProps([]byte(`{"default_generation_settings":{"n_ctx":2048,"params":{}},"total_slots":4}`))
	if err != nil || p != (Props{Context: 2048, Slots: 4}) {
		t.Errorf("%+v, %v", p, err)
	}
	names, err := openAIModels([]byte(`{"models":[{"name":"x"}],"data":[{"id":"a"},{"id":"b"}]}`))
	if diff := cmp.Diff([]string{"a", "b"}, names); err != nil || diff != "" {
		t.Error(diff, err)
	}
	if _, err := openAIModels([]byte(`no`)); err == nil {
		t.Error("text was taken as a list")
	}
	if _, err := llamaProps([]byte(`no`)); err == nil {
		t.Error("text was taken as properties")
	}
}

func TestWhatALoadedModelLacksIsToldAndNotGuessed(t *testing.T) {
	for name, c := range map[string]struct{ body, lacks string }{
		"nothing told":   {`{"total_slots":4}`, ""},
		"text only":      {`{"modalities":{"vision":false,"audio":false},"chat_template_caps":{"supports_tools":false}}`, "images,audio,tools"},
		"sees and calls": {`{"modalities":{"vision":true,"audio":false},"chat_template_caps":{"supports_tools":true}}`, "audio"},
		"null":           {`{"modalities":{"vision":null},"chat_template_caps":null}`, ""},
	} {
		p, err := llamaProps([]byte(c.body))
		if err != nil || p.Lacks != c.lacks {
			t.Errorf("%s: lacks %q, not %q (%v)", name, p.Lacks, c.lacks, err)
		}
	}
}

func TestHelpIsReadAsFlags(t *testing.T) {
	f := ParseHelp("-ngl,  --gpu-layers, --n-gpu-layers N   layers\n--ui,  --webui, --no-ui, --no-webui\n  see --fit_x and a-b\n")
	for flag, want := range map[string]bool{
		"-ngl": true, "--n-gpu-layers": true, "--no-webui": true, "--fit_x": true, "-b": false, "--gpu": false,
	} {
		if f.Has(flag) != want {
			t.Errorf("%s: %v", flag, !want)
		}
	}
	if empty := ParseHelp("error while loading shared libraries"); empty.Asked() || !empty.Has("--anything") {
		t.Error("text without flags counts as an answer")
	}
}

func TestEnvironmentIsGuarded(t *testing.T) {
	for _, entry := range []string{
		"LD_PRELOAD=/x", "PATH=/x", "HOME=/", "http_proxy=x", "HTTPS_PROXY=x", "LLAMA_ARG_HOST=0.0.0.0", "GGML_BACKEND_PATH=/x",
		"PYTHONPATH=/x", "HF_TOKEN=x", "MALLOC_CONF=x", "NCCL_NET_PLUGIN=x", "ld_preload=x", "X=/lib/evil.so",
		"NOVALUE", "=x", "A=b\nC=d", "A=\x00",
	} {
		if err := CheckEnv(catalog.EngineLlamaCpp, []string{entry}); !errors.Is(err, ErrProfile) {
			t.Errorf("%q: %v", entry, err)
		}
	}
	if err := CheckEnv(catalog.EngineLlamaCpp, []string{"LLAMA_API_KEY=k", "OMP_NUM_THREADS=2", "CUDA_VISIBLE_DEVICES=GPU-1"}); err != nil {
		t.Error(err)
	}
	if err := CheckEnv("other", []string{"LLAMA_API_KEY=k"}); err == nil {
		t.Error("another engine's variable was taken")
	}
}
