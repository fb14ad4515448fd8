package engines

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"llmgw/mesh/catalog"
)

// LlamaCpp is the adapter of llama.cpp's llama-server.
type LlamaCpp struct{}

var _ Adapter = LlamaCpp{}

var kvTypes = []string{"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"}

// llamaFlags is the allow-list for profiles. Flags that run code, read or
// write files, reach the network or open ports are absent on purpose, and so
// are those that the adapter owns.
var llamaFlags = flagSet{engine: catalog.EngineLlamaCpp, rules: []flagRule{
	{long: "--batch-size", aliases: []string{"-b"}, kind: kindInt, min: 1, max: 65536},
	{long: "--ubatch-size", aliases: []string{"-ub"}, kind: kindInt, min: 1, max: 65536},
	{long: "--cache-type-k", aliases: []string{"-ctk"}, kind: kindEnum, values: kvTypes},
	{long: "--cache-type-v", aliases: []string{"-ctv"}, kind: kindEnum, values: kvTypes},
	{long: "--flash-attn", aliases: []string{"-fa"}, kind: kindEnum, values: []string{"on", "off", "auto"}},
	{long: "--cpu-moe", aliases: []string{"-cmoe"}, kind: kindBool},
	{long: "--n-cpu-moe", aliases: []string{"-ncmoe"}, kind: kindInt, min: 0, max: 4096},
	{long: "--cache-reuse", kind: kindInt, min: 0, max: 1 << 20},
	{long: "--slot-prompt-similarity", aliases: []string{"-sps"}, kind: kindFloat, min: 0, max: 1},
	{long: "--ctx-checkpoints", aliases: []string{"-ctxcp"}, kind: kindInt, min: 0, max: 1024},
	{long: "--threads", aliases: []string{"-t"}, kind: kindInt, min: 1, max: 1024},
	{long: "--threads-batch", aliases: []string{"-tb"}, kind: kindInt, min: 1, max: 1024},
	{long: "--jinja", kind: kindBool, negated: "--no-jinja"},
	{long: "--swa-full", kind: kindBool},
	{long: "--pooling", kind: kindEnum, values: []string{"none", "mean", "cls", "last", "rank"}},
}}

// Bounds of what a profile may ask of one process.
const (
	maxParallel = 1024
	maxContext  = 16 << 20 // tokens of one request
)

// Name implements Adapter.
func (LlamaCpp) Name() string { return catalog.EngineLlamaCpp }

// Formats implements Adapter.
func (LlamaCpp) Formats() []string { return []string{catalog.FormatGGUF} }

// Program implements Adapter.
func (LlamaCpp) Program() Program { return Program{Name: "llama-server", Help: []string{"--help"}} }

// Validate implements Adapter. Placement on GPUs needs a proof that they hold
// the memory; without that proof only the CPU is taken.
func (a LlamaCpp) Validate(p catalog.Profile, devices []catalog.Device) error {
	if err := checkSize(a.Name(), p); err != nil {
		return err
	}
	for _, d := range devices {
		if d.Kind != catalog.DeviceCPU {
			return &ProfileError{Engine: a.Name(), Arg: d.ID, Reason: "this adapter places on the CPU only"}
		}
	}
	_, err := a.profileFlags(p)
	return err
}

// profileFlags parses a profile's arguments and checks how they fit together.
func (a LlamaCpp) profileFlags(p catalog.Profile) ([]parsedFlag, error) {
	flags, err := llamaFlags.parse(p.Args)
	if err != nil {
		return nil, err
	}
	if _, ok := findFlag(flags, "--pooling"); ok && !p.Embeddings {
		return nil, &ProfileError{Engine: a.Name(), Arg: "--pooling", Reason: "needs embeddings: true"}
	}
	v, _ := findFlag(flags, "--cache-type-v")
	fa, _ := findFlag(flags, "--flash-attn")
	if strings.Contains(v, "q") && fa == "off" {
		return nil, &ProfileError{Engine: a.Name(), Arg: "--cache-type-v", Reason: "a quantised V cache needs flash attention"}
	}
	return flags, nil
}

func findFlag(flags []parsedFlag, long string) (value string, ok bool) {
	i := slices.IndexFunc(flags, func(f parsedFlag) bool { return f.rule.long == long })
	if i < 0 {
		return "", false
	}
	return flags[i].value, true
}

func checkSize(engine string, p catalog.Profile) error {
	if p.Parallel < 0 || p.Parallel > maxParallel {
		return &ProfileError{Engine: engine, Arg: "parallel", Reason: "must be 0 to " + strconv.Itoa(maxParallel)}
	}
	if p.Context < 0 || p.Context > maxContext {
		return &ProfileError{Engine: engine, Arg: "context", Reason: "must be 0 to " + strconv.Itoa(maxContext)}
	}
	return nil
}

// checkShard refuses names and paths that a command line would read as
// something else.
func checkShard(engine string, s catalog.Shard) error {
	switch {
	case s.Model.Name == "" || strings.HasPrefix(s.Model.Name, "-") || strings.ContainsAny(s.Model.Name, ",\x00\n"):
		return &ProfileError{Engine: engine, Arg: "name", Reason: "the engine cannot serve under this model name"}
	case !filepath.IsAbs(s.Weights) || strings.ContainsAny(s.Weights, "\x00\n"):
		return &ProfileError{Engine: engine, Arg: "weights", Reason: "the path of the weights is not absolute"}
	}
	return nil
}

// Commands implements Adapter. Every flag on which memory, network or behaviour
// depends is explicit, because defaults have changed between builds; the
// profile's own flags come before the adapter's, so that ours win.
func (a LlamaCpp) Commands(s catalog.Shard, at Endpoint) ([]Command, error) {
	if err := a.Validate(s.Profile, s.Devices); err != nil {
		return nil, err
	}
	if err := checkShard(a.Name(), s); err != nil {
		return nil, err
	}
	own, err := a.profileFlags(s.Profile)
	if err != nil {
		return nil, err
	}
	b := llamaArgs{flags: at.Flags, args: argv(own)}
	for _, f := range own {
		b.need("", f.flag)
	}
	b.need(s.Weights, "--model", "-m")
	b.need(s.Model.Name, "--alias", "-a")
	b.need(at.Host, "--host")
	b.need(strconv.Itoa(at.Port), "--port")
	b.need(strconv.Itoa(s.Model.ContextTokens(s.Profile)*s.Profile.Slots()), "--ctx-size", "-c")
	b.need(strconv.Itoa(s.Profile.Slots()), "--parallel", "-np")
	b.want("0", "--n-gpu-layers", "-ngl")
	b.want("none", "--device", "-dev")
	b.want("off", "--fit", "-fit")
	// The host-side prompt cache would take up to 8 GiB that placement does
	// not know of; what a slot holds is reused all the same.
	b.want("0", "--cache-ram", "-cram")
	b.want("", "--offline")
	b.want("", "--metrics")
	b.want("", "--no-webui", "--no-ui")
	if _, ok := findFlag(own, "--jinja"); !ok {
		b.want("", "--jinja")
	}
	if s.Profile.Embeddings {
		b.need("", "--embeddings", "--embedding")
		if _, ok := findFlag(own, "--pooling"); !ok {
			b.need("mean", "--pooling")
		}
	}
	if b.missing != "" {
		return nil, &ProfileError{Engine: a.Name(), Arg: b.missing, Reason: "this build of llama-server does not know the flag"}
	}
	return []Command{{Path: at.Binary, Args: b.args, Env: []string{"LLAMA_API_KEY=" + at.Key}}}, nil
}

// Probe implements Adapter.
func (LlamaCpp) Probe() Probe {
	return Probe{
		HealthPath: "/health", ModelsPath: "/v1/models", PropsPath: "/props", MetricsPath: "/metrics",
		Health: llamaHealth, Models: openAIModels, Props: llamaProps, Load: LlamaLoad, Token: openAIToken,
	}
}

// Lacks implements Adapter. One process ranks or generates, and this adapter
// starts none for ranking. Its Responses lack what SDKs read: sequence numbers,
// indexes, and that an answer was cut.
func (LlamaCpp) Lacks(p catalog.Profile) []catalog.Ability {
	lacks := []catalog.Ability{catalog.AbilityResponses, catalog.AbilityRerank, catalog.AbilitySpeech, catalog.AbilityPictures}
	if !p.Embeddings {
		lacks = append(lacks, catalog.AbilityEmbeddings)
	}
	return lacks
}

// llamaArgs collects a command line for one build of the server.
type llamaArgs struct {
	flags   Flags
	args    []string
	missing string // first flag that the build must know and does not
}

// need adds a flag without which the process would not do what was asked.
// An empty value stands for a flag without one. For flags that are in args
// already, it only checks.
func (b *llamaArgs) need(value string, spellings ...string) {
	if !b.add(value, spellings) && b.missing == "" {
		b.missing = spellings[0]
	}
}

// want adds a flag that a build may lack.
func (b *llamaArgs) want(value string, spellings ...string) { b.add(value, spellings) }

func (b *llamaArgs) add(value string, spellings []string) bool {
	flag, ok := b.flags.First(spellings...)
	if !ok || slices.Contains(b.args, flag) {
		return ok
	}
	b.args = append(b.args, flag)
	if value != "" {
		b.args = append(b.args, value)
	}
	return true
}
