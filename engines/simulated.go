package engines

import (
	"path/filepath"
	"strconv"

	"llmgw/engines/kvevents"
	"llmgw/mesh/catalog"
)

// Sim is the adapter of the simulated engine, which lives in llmgw's own
// executable.
type Sim struct{}

var _ Adapter = Sim{}

// SimVerb is the first argument that makes llmgw's executable the simulated
// engine.
const SimVerb = "engine-sim"

// Name implements Adapter.
func (Sim) Name() string { return catalog.EngineSim }

// Formats implements Adapter.
func (Sim) Formats() []string { return []string{catalog.FormatSim} }

// Program implements Adapter.
func (Sim) Program() Program { return Program{Name: "llmgw"} }

// Validate implements Adapter. The simulated engine has no flags for profiles.
func (a Sim) Validate(p catalog.Profile, _ []catalog.Device) error {
	if err := checkSize(a.Name(), p); err != nil {
		return err
	}
	_, err := flagSet{engine: a.Name()}.parse(p.Args)
	return err
}

// Commands implements Adapter.
func (a Sim) Commands(s catalog.Shard, at Endpoint) ([]Command, error) {
	if err := a.Validate(s.Profile, s.Devices); err != nil {
		return nil, err
	}
	if err := checkShard(a.Name(), s); err != nil {
		return nil, err
	}
	args := []string{
		SimVerb,
		"--model", s.Weights,
		"--alias", s.Model.Name,
		"--host", at.Host,
		"--port", strconv.Itoa(at.Port),
		"--ctx-size", strconv.Itoa(s.Model.ContextTokens(s.Profile)),
	}
	if s.Profile.Embeddings {
		args = append(args, "--embeddings")
	}
	if events := a.events(at.RunDir); len(events.Replay) <= maxSocketPath {
		args = append(args, "--kv-events", events.Live, "--kv-replay", events.Replay)
	}
	return []Command{{Path: at.Binary, Args: args, Env: []string{"LLAMA_API_KEY=" + at.Key}}}, nil
}

// maxSocketPath is what the address of a unix socket has room for, in bytes.
const maxSocketPath = 107

func (Sim) events(runDir string) kvevents.Source {
	return kvevents.Source{Live: filepath.Join(runDir, "kv.sock"), Replay: filepath.Join(runDir, "kv-replay.sock")}
}

// Probe implements Adapter.
func (a Sim) Probe() Probe {
	p := LlamaCpp{}.Probe()
	p.Load, p.Events = VLLMLoad, a.events
	return p
}

// Lacks implements Adapter. It writes tokens, pictures and speech of its own, whatever is
// asked.
func (Sim) Lacks(p catalog.Profile) []catalog.Ability {
	lacks := []catalog.Ability{
		catalog.AbilityResponses, catalog.AbilityMessages, catalog.AbilityTokenize, catalog.AbilityRerank,
		catalog.AbilityImages, catalog.AbilityAudio,
		catalog.AbilityTools, catalog.AbilitySchema, catalog.AbilityLogprobs, catalog.AbilityChoices,
	}
	if !p.Embeddings {
		lacks = append(lacks, catalog.AbilityEmbeddings)
	}
	return lacks
}
