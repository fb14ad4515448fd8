package catalog

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Engine names, as profiles and `llmgw engines` spell them.
const (
	EngineLlamaCpp = "llamacpp"
	EngineSim      = "sim"
)

// Weight formats. Each names the kind of engine that can read the file.
const (
	FormatGGUF = "gguf"
	FormatSim  = "sim" // parameters of the simulated engine
)

// Model is a catalog entry: what the mesh serves under one name.
type Model struct {
	ID       string     `json:"id"`   // the folded name; the row's key
	Name     string     `json:"name"` // as the user spelled it
	Aliases  []string   `json:"aliases,omitempty"`
	Source   Source     `json:"source"`
	Limits   Limits     `json:"limits"`
	Scale    Scale      `json:"scale"`
	Pin      string     `json:"pin,omitempty"` // peer ID of the only node that may hold it
	State    ModelState `json:"state"`
	Labels   Selector   `json:"labels"`             // which nodes may hold it
	Profiles []Profile  `json:"profiles,omitempty"` // sorted by ID
	// Declared says whose config file owns the entry; the zero value is nobody's.
	Declared Declaration `json:"declared"`
	Created  int64       `json:"created"` // unix seconds: when its source was written; not a cell of its own
	// Unloaded is the mark of its last unload, a stamp of the mesh's clock; 0: never.
	// UnloadModel alone changes it. It is compared with what named it before, and with
	// no clock.
	Unloaded uint64 `json:"unloaded,omitempty"`
}

// Declaration names the config file of a node that declares a model. The node
// keeps the entry as the file says.
type Declaration struct {
	Node string `json:"node,omitempty"` // peer ID
	File string `json:"file,omitempty"`
}

// Source says where a model's weights came from and what they are. It is one
// cell: two creations of one name cannot mix two sources.
type Source struct {
	URI       string `json:"uri"`
	Revision  string `json:"revision,omitempty"` // what the source calls this version
	Digest    string `json:"digest"`             // sha256:<64 hex digits> of the file
	SizeBytes int64  `json:"size_bytes"`
	Format    string `json:"format"`
	// Architecture, ContextTrain and KVBytesPerToken are read from the file's
	// header; zero when the header does not tell.
	Architecture    string `json:"architecture,omitempty"`
	ContextTrain    int    `json:"context_train,omitempty"`      // tokens
	KVBytesPerToken int64  `json:"kv_bytes_per_token,omitempty"` // at 16 bits
}

// Limits bounds a request to a model. Zero means that the engine decides.
type Limits struct {
	Context   int `json:"context,omitempty"`    // tokens of one request
	MaxOutput int `json:"max_output,omitempty"` // tokens of one answer
	// EndRepetition ends an answer that does nothing but repeat itself.
	EndRepetition bool `json:"end_repetition,omitempty"`
}

// Selector says which nodes may hold a model, by their labels.
type Selector struct {
	Require map[string]string `json:"require,omitempty"` // each must be there with this value
	Forbid  map[string]string `json:"forbid,omitempty"`  // none may be there with this value
}

// Refuses says which label keeps a node from being chosen; empty if none does.
func (s Selector) Refuses(labels map[string]string) string {
	if _, unknown := labels[labelUnreadable]; unknown && len(s.Require)+len(s.Forbid) > 0 {
		return "its labels cannot be read"
	}
	for _, key := range slices.Sorted(maps.Keys(s.Require)) {
		if have, ok := labels[key]; !ok || have != s.Require[key] {
			return fmt.Sprintf("it lacks the required label %s=%s", key, s.Require[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Forbid)) {
		if have, ok := labels[key]; ok && have == s.Forbid[key] {
			return fmt.Sprintf("it has the forbidden label %s=%s", key, have)
		}
	}
	return ""
}

// Scale says how many replicas are wanted.
type Scale struct {
	Min int `json:"min"` // always
	Max int `json:"max"` // while requests ask for them; 0: none is loaded on demand
	// Idle is how long a replica above Min stays without a request; 0: until its
	// memory is needed.
	Idle time.Duration `json:"idle,omitempty"`
}

// MaxReplicas is more than a mesh of this kind has boxes.
const MaxReplicas = 256

// ModelState is what an admin asked for, not what is running.
type ModelState string

// A stopped model keeps its entry and files and refuses requests.
const (
	ModelServed  ModelState = "served"
	ModelStopped ModelState = "stopped"
)

// Profile says how a model runs on a class of hardware.
type Profile struct {
	ID         string   `json:"id"`
	Engine     string   `json:"engine"`
	Args       []string `json:"args,omitempty"`     // extra engine flags, checked by the adapter's allow-list
	Context    int      `json:"context,omitempty"`  // tokens of one request; 0: DefaultContext or less
	Parallel   int      `json:"parallel,omitempty"` // requests at once; 0: DefaultParallel
	Embeddings bool     `json:"embeddings,omitempty"`
	Priority   int      `json:"priority,omitempty"` // higher is tried first
	// Weight scales the share of requests that its replicas get beside others, which
	// goes by what they are measured to do; 0: 1.
	Weight float64 `json:"weight,omitempty"`
}

// MaxWeight bounds the weight of a profile: above, others would get nothing.
const MaxWeight = 100

// Process is what a process of the profile is started with: the rest concerns those
// who send it requests, and may change while it runs.
func (p Profile) Process() Profile {
	p.Priority, p.Weight = 0, 0
	return p
}

const (
	// DefaultContext bounds a request's tokens unless the profile says more:
	// KV memory grows with it, and a box should not be filled by a default.
	DefaultContext = 4096
	// DefaultParallel is llama-server's own default number of slots.
	DefaultParallel = 4
)

// ContextTokens is the number of tokens one request may use under p.
func (m Model) ContextTokens(p Profile) int {
	ctx := p.Context
	if ctx <= 0 {
		ctx = DefaultContext
	}
	for _, limit := range []int{m.Limits.Context, m.Source.ContextTrain} {
		if limit > 0 && ctx > limit {
			ctx = limit
		}
	}
	return ctx
}

// Slots is the number of requests that p serves at once.
func (p Profile) Slots() int {
	if p.Parallel > 0 {
		return p.Parallel
	}
	return DefaultParallel
}

// MemoryNeed estimates the bytes that one replica of m needs under p: the file
// plus the KV cache of all slots when the header tells its size, else 1.2
// times the file. What is more than can be counted is math.MaxInt64.
func (m Model) MemoryNeed(p Profile) int64 {
	if m.Source.Format == FormatSim {
		return 64 << 20 // the simulated engine holds no weights
	}
	size := max(m.Source.SizeBytes, 0)
	cache := size / 5
	if perToken := m.Source.KVBytesPerToken; perToken > 0 {
		cache = product(product(perToken, int64(m.ContextTokens(p))), int64(p.Slots()))
	}
	if size > math.MaxInt64-cache {
		return math.MaxInt64
	}
	return size + cache
}

// product of two numbers above zero; math.MaxInt64 if it is more.
func product(a, b int64) int64 {
	if a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}

// FoldName is the form of a model's name that is compared and stored as its ID.
func FoldName(name string) string { return strings.ToLower(name) }

// Assignment says which node owns one slot of a model. It is one cell; of two,
// the one with the higher (Epoch, Steward) stays.
type Assignment struct {
	Model   string `json:"model"`
	Slot    int    `json:"slot"`
	Owner   string `json:"owner"` // peer ID; empty: vacant
	Epoch   uint64 `json:"epoch"`
	Steward string `json:"steward"` // peer ID of the node that wrote it
	Reason  string `json:"reason"`  // for a person
	// Device is the ID of the owner's device that the slot was counted on; empty:
	// the CPU.
	Device string `json:"device,omitempty"`
	// Demand: requests asked for it, not Scale.Min. It stays until it is idle.
	Demand bool `json:"demand,omitempty"`
	// After is Model.Unloaded as those knew it that asked; an unload since then ends it.
	After uint64 `json:"after,omitempty"`
}

// Shard is one node's part of a replica: everything an engine adapter needs.
type Shard struct {
	Model    Model
	Profile  Profile
	Slot     int
	Epoch    uint64
	Weights  string // absolute path of the weight file
	Devices  []Device
	Hostname string
}

// DeviceKind tells what computes.
type DeviceKind string

// Device kinds.
const (
	DeviceCPU    DeviceKind = "cpu"
	DeviceNVIDIA DeviceKind = "nvidia"
	DeviceAMD    DeviceKind = "amd"
)

// Device is something that holds weights and computes. Memory that could not
// be measured is nil: unknown is never zero.
type Device struct {
	ID          string     `json:"id"` // "cpu" or a GPU's UUID; never an index
	Kind        DeviceKind `json:"kind"`
	Name        string     `json:"name"`
	MemoryTotal *int64     `json:"memory_total,omitempty"` // bytes
	MemoryFree  *int64     `json:"memory_free,omitempty"`  // bytes, as measured
	BusyPercent *float64   `json:"busy_percent,omitempty"`
	Celsius     *float64   `json:"celsius,omitempty"`
}

// Inventory is a box's hardware as measured. GPUs that could not be read are
// named in Notes with the driver's own words.
type Inventory struct {
	Arch     string   `json:"arch"`
	OS       string   `json:"os"`
	Threads  int      `json:"threads"`
	RAMTotal *int64   `json:"ram_total,omitempty"` // bytes
	RAMFree  *int64   `json:"ram_free,omitempty"`  // bytes available to a new process
	Devices  []Device `json:"devices"`             // the CPU is always the last
	Notes    []string `json:"notes,omitempty"`
}

// EngineInfo is an engine that is installed on a node.
type EngineInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	From    string `json:"from"` // how it got here: configured, PATH, wheel, built in
	Path    string `json:"path,omitempty"`
	Build   string `json:"build,omitempty"` // SHA-256 of the binary: the same on both ends of a split
	// Devices are the kinds that this build computes on besides the CPU, with
	// commas.
	Devices string `json:"devices,omitempty"`
}

// ComputesOn says whether the engine can use a device of this kind.
func (e EngineInfo) ComputesOn(kind DeviceKind) bool {
	return kind == DeviceCPU || kind != "" && slices.Contains(strings.Split(e.Devices, ","), string(kind))
}

// ReplicaState is where a replica stands on its node. Only Ready is routed to.
type ReplicaState string

// Replica states, in the order of a normal life.
const (
	ReplicaStarting    ReplicaState = "starting"    // process started, engine does not answer yet
	ReplicaLoading     ReplicaState = "loading"     // engine answers and loads
	ReplicaWarming     ReplicaState = "warming"     // loaded, the one test token is awaited
	ReplicaReady       ReplicaState = "ready"       // serves
	ReplicaStopping    ReplicaState = "stopping"    // drains and ends
	ReplicaBackoff     ReplicaState = "backoff"     // died, will be started again
	ReplicaQuarantined ReplicaState = "quarantined" // died too often; waits for a change or an admin
	ReplicaFailed      ReplicaState = "failed"      // cannot start as it is
)

// ReplicaStatus is what a node says of one of its replicas, by presence.
type ReplicaStatus struct {
	Model   string       `json:"model"` // model ID
	Slot    int          `json:"slot"`
	Epoch   uint64       `json:"epoch"`
	Digest  string       `json:"digest"`
	Engine  string       `json:"engine"`
	Profile string       `json:"profile"`
	State   ReplicaState `json:"state"`
	Since   int64        `json:"since"` // unix seconds on the holder's clock; for display
	Reason  string       `json:"reason,omitempty"`
	// LastLines are the engine's last output lines when it failed.
	LastLines []string `json:"last_lines,omitempty"`
	Device    string   `json:"device,omitempty"`
	Context   int      `json:"context,omitempty"` // tokens of one request, as the engine reports
	Slots     int      `json:"slots,omitempty"`   // requests at once
	LoadMS    int64    `json:"load_ms,omitempty"` // from start to ready, in milliseconds; 0: not seen
	// Lacks is what it is known not to be able to do.
	Lacks     []Ability `json:"lacks,omitempty"`
	InFlight  int       `json:"in_flight,omitempty"`  // relays now
	LoadKnown bool      `json:"load_known,omitempty"` // its engine tells what follows
	Waiting   int       `json:"waiting,omitempty"`    // requests in its engine's own queue
	// AtOnce are the requests that its engine was seen to compute while others waited
	// in it; 0: none waited for long.
	AtOnce int     `json:"at_once,omitempty"`
	KVUse  float64 `json:"kv_use,omitempty"` // of its KV cache by what it computes, 0 to 1 in steps of KVStep
	// KVTokens are the tokens that its KV cache holds for prompts; 0: it does not tell.
	KVTokens int64  `json:"kv_tokens,omitempty"`
	Cleared  uint64 `json:"cleared,omitempty"` // times that its KV cache was emptied
	Restarts int    `json:"restarts,omitempty"`
	Adopted  bool   `json:"adopted,omitempty"` // found running by a daemon that came back
	PID      int    `json:"pid,omitempty"`
	// Used is when the last request began or ended, in unix seconds of the holder's
	// clock and in steps of UsedStep: it orders replicas of one node.
	Used int64 `json:"used,omitempty"`
	// Idle: the holder counted Scale.Idle without a request.
	Idle bool `json:"idle,omitempty"`
	// Fresh: the holder has not counted yet, since it was ready, how long it serves at
	// least before it makes room for another that requests wait for.
	Fresh bool `json:"fresh,omitempty"`
}

// Ability is something that a replica may lack: a kind of request, or a part of
// one. Only what is known to be lacking is told: unknown is not lacking.
type Ability string

// Abilities. The first group are kinds of requests, which another kind may
// stand in for; the second are parts of a request, which are refused by name.
const (
	AbilityResponses  Ability = "responses"
	AbilityMessages   Ability = "messages"
	AbilityTokenize   Ability = "tokenize"
	AbilityEmbeddings Ability = "embeddings"
	AbilityRerank     Ability = "rerank"
	AbilitySpeech     Ability = "speech"   // makes sound
	AbilityPictures   Ability = "pictures" // makes pictures

	AbilityTools    Ability = "tools"    // its chat template knows tools
	AbilitySchema   Ability = "schema"   // keeps to a JSON schema
	AbilityImages   Ability = "images"   // reads pictures
	AbilityAudio    Ability = "audio"    // reads sound
	AbilityLogprobs Ability = "logprobs" // tells probabilities
	AbilityChoices  Ability = "choices"  // n > 1
)

// UsedStep keeps a busy node from announcing each request.
const UsedStep = 10 // seconds

// Want is what a node's requests wait for, by presence.
type Want struct {
	Model    string `json:"model"`    // model ID
	Replicas int    `json:"replicas"` // in the whole mesh
	Since    int64  `json:"since"`    // unix seconds on the node's clock; for display
	// Waited is how long the first of them has waited, in seconds and in steps as those
	// of WaitedStep. The node counts it on its own, so that it can be compared.
	Waited int64 `json:"waited,omitempty"`
	// After is Model.Unloaded as the node knew it when the first of them began.
	After uint64 `json:"after,omitempty"`
}

// WaitedStep is a wait in steps, each of which is twice the one before, so that one
// that lasts is not announced each second.
func WaitedStep(d time.Duration) int64 {
	const first = 8
	step := int64(first)
	for 2*step <= int64(d/time.Second) {
		step *= 2
	}
	if d < first*time.Second {
		return 0
	}
	return step
}

// Asks says whether requests wait for m that began after its last unload. Which was
// first is told by what their node knew of, not by a clock: a request that begins
// while news of the unload are on their way to its node began before it.
func (w Want) Asks(m Model) bool { return w.Model == m.ID && w.After >= m.Unloaded }

// FetchStatus is a download in progress, by presence.
type FetchStatus struct {
	Source string `json:"source"`
	As     string `json:"as"`
	Phase  string `json:"phase"`
	Done   int64  `json:"done"`
	Total  int64  `json:"total"` // 0: unknown
}

// Presence is what a node tells of itself: never on disk, replaced whole, the
// highest (Boot, Sequence) stays. Remote times in it are for display only.
type Presence struct {
	Peer      string          `json:"peer"`
	Boot      uint64          `json:"boot"`
	Sequence  uint64          `json:"sequence"`
	Name      string          `json:"name"`
	Version   string          `json:"version"`
	Addresses []string        `json:"addresses"` // multiaddrs of the mesh port
	API       []string        `json:"api"`       // host:port of the public port
	Inventory Inventory       `json:"inventory"`
	Engines   []EngineInfo    `json:"engines"`
	Replicas  []ReplicaStatus `json:"replicas"`
	Weights   []string        `json:"weights"` // digests on disk
	Fetches   []FetchStatus   `json:"fetches,omitempty"`
	Wants     []Want          `json:"wants,omitempty"` // by model
	Stopping  bool            `json:"stopping,omitempty"`
	Hosts     []HostStatus    `json:"hosts,omitempty"` // that it sponsors
	// Complete: engines and weights are told. A daemon that has just started
	// is heard before it knows them; what it does not tell then it may have.
	Complete bool   `json:"complete"`
	DiskFree *int64 `json:"disk_free,omitempty"` // bytes where weights go
}

// Replica finds the node's replica of one slot of a model.
func (p Presence) Replica(model string, slot int) (ReplicaStatus, bool) {
	i := slices.IndexFunc(p.Replicas, func(r ReplicaStatus) bool { return r.Model == model && r.Slot == slot })
	if i < 0 {
		return ReplicaStatus{}, false
	}
	return p.Replicas[i], true
}
