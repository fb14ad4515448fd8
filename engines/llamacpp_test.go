package engines

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"llmgw/mesh/catalog"
)

func shard(edit func(*catalog.Shard)) catalog.Shard {
	s := catalog.Shard{
		Model: catalog.Model{
			ID: "org/smol:q4", Name: "Org/Smol:q4",
			Source: catalog.Source{Format: catalog.FormatGGUF, Architecture: "llama", ContextTrain: 8192},
		},
		Profile: catalog.Profile{ID: "cpu", Engine: catalog.EngineLlamaCpp, Context: 2048, Parallel: 3},
		Weights: "/weights/file",
		Devices: []catalog.Device{{ID: "cpu", Kind: catalog.DeviceCPU}},
	}
	if edit != nil {
		edit(&s)
	}
	return s
}

var endpoint = Endpoint{Host: "127.0.0.1", Port: 8791, Key: "run-key", Binary: "/bin/llama-server", RunDir: "/run/x"}

func TestLlamaCommandIsExplicit(t *testing.T) {
	got, err := LlamaCpp{}.Commands(shard(func(s *catalog.Shard) {
		s.Profile.Embeddings = true
		s.Profile.Args = []string{"-b", "512", "--cache_type_k=Q8_0", "-fa", "on", "--swa-full"}
	}), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	want := []Command{{
		Path: "/bin/llama-server",
		Args: []string{
			"--batch-size", "512", "--cache-type-k", "q8_0", "--flash-attn", "on", "--swa-full",
			"--model", "/weights/file", "--alias", "Org/Smol:q4", "--host", "127.0.0.1", "--port", "8791",
			"--ctx-size", "6144", "--parallel", "3", "--n-gpu-layers", "0", "--device", "none", "--fit", "off",
			"--cache-ram", "0", "--offline", "--metrics", "--no-webui", "--jinja",
			"--embeddings", "--pooling", "mean",
		},
		Env: []string{"LLAMA_API_KEY=run-key"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := CheckEnv(catalog.EngineLlamaCpp, got[0].Env); err != nil {
		t.Error(err)
	}
}

func TestLlamaCommandFollowsTheProfile(t *testing.T) {
	for _, tc := range []struct {
		name    string
		edit    func(*catalog.Shard)
		with    []string
		without []string
	}{
		{"no embeddings", nil, nil, []string{"--embeddings", "--pooling"}},
		{"own pooling", func(s *catalog.Shard) {
			s.Profile.Embeddings, s.Profile.Args = true, []string{"--pooling", "cls"}
		}, []string{"--pooling cls", "--embeddings"}, []string{"--pooling mean"}},
		{"own template engine", func(s *catalog.Shard) { s.Profile.Args = []string{"--no-jinja"} },
			[]string{"--no-jinja"}, []string{"--jinja"}},
		{"jinja asked for is not doubled", func(s *catalog.Shard) { s.Profile.Args = []string{"--jinja"} },
			[]string{"--jinja"}, nil},
		{"defaults", func(s *catalog.Shard) { s.Profile.Context, s.Profile.Parallel = 0, 0 },
			[]string{"--ctx-size 16384", "--parallel 4"}, nil},
		{"trained for less", func(s *catalog.Shard) { s.Model.Source.ContextTrain = 512 },
			[]string{"--ctx-size 1536"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := LlamaCpp{}.Commands(shard(tc.edit), endpoint)
			if err != nil {
				t.Fatal(err)
			}
			line := " " + strings.Join(got[0].Args, " ") + " "
			for _, w := range tc.with {
				if strings.Count(line, " "+w+" ") != 1 {
					t.Errorf("%q is not there once in %q", w, line)
				}
			}
			for _, w := range tc.without {
				if strings.Contains(line, " "+w+" ") {
					t.Errorf("%q is in %q", w, line)
				}
			}
		})
	}
}

func TestLlamaRefusesWhatAProfileMustNotDo(t *testing.T) {
	for _, args := range [][]string{
		{"--tools", "all"}, {"--rpc", "10.0.0.1:50052"}, {"--mmproj-url", "http://x"}, {"-hf", "a/b"}, {"-mu", "http://x"},
		{"--lora", "/x"}, {"--lora-scaled", "/x"}, {"-md", "/x"}, {"--chat-template-file", "/etc/passwd"},
		{"--api-key-file", "/etc/passwd"}, {"--path", "/"}, {"--media-path", "/"}, {"--override-kv", "a=b"},
		{"--log-file", "/x"}, {"--log-prompts-dir", "/x"}, {"--slot-save-path", "/x"}, {"--api-prefix", "/x"},
		{"--reuse-port"}, {"--props"}, {"--host", "0.0.0.0"}, {"--port", "80"}, {"--api-key", "x"}, {"--alias", "x"},
		{"-m", "/x"}, {"-c", "1"}, {"-np", "9"}, {"-ngl", "99"}, {"--device", "CUDA0"}, {"--ssl-key-file", "/x"},
		{"--CHAT_TEMPLATE_FILE", "/x"}, {"--chat-template-file=/etc/passwd"}, {"--control-vector", "/x"},
		{"value"}, {"-b"}, {"-b", "/etc/passwd"}, {"-b", "0"}, {"-b", "99999999"}, {"-b", "12x"}, {"-b", "0x10"},
		{"-b", "1", "--batch-size", "2"}, {"-fa", "maybe"}, {"--swa-full=1"}, {"-sps", "NaN"}, {"-sps", "1.5"},
		{"-sps", "+Inf"}, {"-b", ""}, {""}, {"-b", "1\n"}, {"--jinja", "--no-jinja"}, {"--pooling", "mean"},
		{"-ctv", "q8_0", "-fa", "off"}, {"--batch-size.x", "1"}, {"---jinja"}, {"--", "-b"}, {strings.Repeat("-", 300)},
	} {
		err := LlamaCpp{}.Validate(shard(func(s *catalog.Shard) { s.Profile.Args = args }).Profile, nil)
		var typed *ProfileError
		if !errors.Is(err, ErrProfile) || !errors.As(err, &typed) || typed.Engine != catalog.EngineLlamaCpp {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestLlamaRefusesShardsThatItCannotRun(t *testing.T) {
	for name, edit := range map[string]func(*catalog.Shard){
		"GPU":              func(s *catalog.Shard) { s.Devices = []catalog.Device{{ID: "GPU-1", Kind: catalog.DeviceNVIDIA}} },
		"too many slots":   func(s *catalog.Shard) { s.Profile.Parallel = maxParallel + 1 },
		"negative slots":   func(s *catalog.Shard) { s.Profile.Parallel = -1 },
		"negative context": func(s *catalog.Shard) { s.Profile.Context = -1 },
		"name is a flag":   func(s *catalog.Shard) { s.Model.Name = "-v" },
		"name is a list":   func(s *catalog.Shard) { s.Model.Name = "a,b" },
		"no name":          func(s *catalog.Shard) { s.Model.Name = "" },
		"relative weights": func(s *catalog.Shard) { s.Weights = "-v" },
	} {
		if _, err := (LlamaCpp{}).Commands(shard(edit), endpoint); !errors.Is(err, ErrProfile) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLlamaCommandFitsTheBuild(t *testing.T) {
	at := endpoint
	at.Flags = ParseHelp("-m, --model F\n-a, --alias N\n--host H\n--port P\n-c, --ctx-size N\n-np, --parallel N\n-ngl, --gpu-layers N\n--no-ui\n--metrics\n")
	got, err := LlamaCpp{}.Commands(shard(nil), at)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"--model", "/weights/file", "--alias", "Org/Smol:q4", "--host", "127.0.0.1", "--port", "8791",
		"--ctx-size", "6144", "--parallel", "3", "-ngl", "0", "--metrics", "--no-ui",
	}
	if diff := cmp.Diff(want, got[0].Args); diff != "" {
		t.Error(diff)
	}
	for name, edit := range map[string]func(*catalog.Shard){
		"embeddings": func(s *catalog.Shard) { s.Profile.Embeddings = true },
		"own flag":   func(s *catalog.Shard) { s.Profile.Args = []string{"-b", "1"} },
	} {
		if _, err := (LlamaCpp{}).Commands(shard(edit), at); !errors.Is(err, ErrProfile) {
			t.Errorf("%s that the build lacks: %v", name, err)
		}
	}
}

func TestRealLlamaServerKnowsEveryFlag(t *testing.T) {
	binary := os.Getenv("LLMGW_TEST_LLAMA_SERVER")
	if binary == "" {
		if os.Getenv("LLMGW_CI") == "1" {
			t.Fatal("LLMGW_TEST_LLAMA_SERVER is not set")
		}
		t.Skip("LLMGW_TEST_LLAMA_SERVER is not set")
	}
	out, err := exec.Command(binary, LlamaCpp{}.Program().Help...).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	at := endpoint
	at.Flags = ParseHelp(string(out))
	s := shard(func(s *catalog.Shard) { s.Profile.Embeddings = true })
	asked, err := LlamaCpp{}.Commands(s, at)
	if err != nil {
		t.Fatal(err)
	}
	blind, err := LlamaCpp{}.Commands(s, endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(blind, asked); diff != "" {
		t.Errorf("flags were left out: %s", diff)
	}
	for _, rule := range llamaFlags.rules {
		for _, spelling := range append([]string{rule.long}, rule.aliases...) {
			if !at.Flags.Has(spelling) {
				t.Errorf("the build does not know %s", spelling)
			}
		}
	}
}

func FuzzProfileArgs(f *testing.F) {
	f.Add("-b\x00512\x00--jinja")
	f.Add("--cache-type-k=q8_0")
	f.Fuzz(func(t *testing.T, joined string) {
		got, err := LlamaCpp{}.Commands(shard(func(s *catalog.Shard) {
			s.Profile.Args = strings.Split(joined, "\x00")
		}), endpoint)
		if err != nil {
			return
		}
		// What passes is the adapter's own text: known flags, short plain values.
		own := got[0].Args[:slices.Index(got[0].Args, "--model")]
		for _, a := range own {
			if strings.ContainsAny(a, "/~\n\x00 ") || len(a) > 40 {
				t.Fatalf("%q reached the command line", a)
			}
		}
	})
}
