package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// wantedClients says what each client has to find; "-" is what it cannot ask for.
// "refused" is the client's own exception, with the right status, code and words.
// The clients run in this order: those that wait long for their retry come first.
const wantedClients = `
feature           openai   llm      npm      litellm  langchain  anthropic  curl     ollama
chat              ok       ok       ok       ok       ok         -          ok       ok
stream            ok       -        ok       ok       ok         -          ok       ok
stream+usage      ok       ok       ok       ok       ok         -          ok       -
tools-auto        refused  refused  refused  refused  refused    refused    refused  refused
tool-required     ok       -        ok       ok       ok         ok         ok       -
tool-stream       ok       -        ok       ok       ok         ok         ok       -
schema            ok       ok       ok       ok       ok         ok         ok       ok
vision            refused  refused  refused  refused  refused    refused    refused  refused
embeddings        ok       -        ok       ok       ok         -          ok       ok
embeddings-float  ok       -        ok       -        -          -          ok       -
embeddings-old    -        -        -        -        -          -          ok       ok
responses         ok       ok       ok       ok       ok         -          ok       -
responses-stream  ok       ok       ok       ok       ok         -          ok       -
responses-helper  ok       -        ok       -        -          -          -        -
responses-schema  ok       -        ok       -        -          -          ok       -
responses-stored  ok       -        ok       -        -          -          -        -
messages          -        -        -        ok       -          ok         ok       -
messages-stream   -        -        -        ok       -          ok         ok       -
count-tokens      -        -        -        -        -          ok         ok       -
generate          -        -        -        -        -          -          ok       ok
models            ok       -        ok       -        -          ok         ok       ok
model             ok       -        ok       -        -          ok         ok       ok
running           -        -        -        -        -          -          ok       ok
cancel            ok       ok       ok       ok       ok         ok         ok       ok
401               refused  refused  refused  refused  refused    refused    refused  refused
403               refused  refused  refused  refused  refused    refused    refused  refused
404               refused  refused  refused  refused  refused    refused    refused  refused
too-long          refused  refused  refused  refused  refused    refused    refused  refused
413               refused  -        refused  -        -          refused    refused  refused
429               refused  -        refused  refused  refused    refused    refused  refused
retry             ok       ok       ok       ok       ok         ok         ok       -
`

// Cells of the key with a limit: they are filled at one box only, the client's
// home, beside the others.
var limitedCells = []string{"429", "retry"}

// meanwhile is more requests than a limited key may have room for again since it was
// used up; the clients' programs have the same number.
const meanwhile = 8

// column is a client and what it found.
type column struct {
	name    string
	version string
	home    *Box
	keys    struct{ may, narrow, limited string }
	spent   int // refusals of the limited key that the lab itself got

	mu    sync.Mutex
	cells map[cell]finding
	ended string // how the client's program ended, when not in order
}

type cell struct{ feature, box string }

// finding is one cell as a client tells it: ok, refused or failed, and with the
// last what came instead.
type finding struct {
	Outcome string  `json:"outcome"`
	Detail  string  `json:"detail"`
	Seconds float64 `json:"seconds"`
}

func (c *column) found(feature, box string, f finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cells[cell{feature, box}] = f
}

// clientStage is where the clients run: unchanged, on the laptop, against both
// boxes.
type clientStage struct {
	scene
	engine  *Engine
	metrics string // a key
}

// TestClients has unmodified clients use every feature of the API, at the box
// that serves and at the one that does not. One runs after the other: each has to
// see the engine idle once. What takes a minute goes on beside the next ones.
func TestClients(t *testing.T) {
	s := &clientStage{scene: newScene(t)} // skips where there can be no lab, before anything is installed
	fills := map[string]func(*clientStage, *column) (finish func()){
		"openai": script(Python(t), "openai_cells.py"), "anthropic": script(Python(t), "anthropic_cells.py"),
		"ollama": script(Python(t), "ollama_cells.py"), "llm": script(Python(t), "llm_cells.py"),
		"langchain": script(Python(t), "langchain_cells.py"), "litellm": script(LiteLLM(t), "litellm_cells.py"),
		"npm": script("node", "openai_cells.mjs", Node(t)), "curl": curlCells,
	}
	versions := clientVersions(t)
	began := time.Now()
	s.a.Start()
	s.b.Start()
	s.b.Join(s.a)
	s.serveSmolLM2()
	s.engine = s.b.Engine(LlamaServer)
	names, wanted := parseWanted(wantedClients)
	columns := s.columns(names)
	t.Logf("the boxes are ready after %v", time.Since(began).Round(time.Second))
	var rest sync.WaitGroup
	for n, c := range columns {
		for _, later := range columns[n:] {
			s.useUp(later)
		}
		c.version = versions[c.name]
		finish := fills[c.name](s, c)
		rest.Go(finish)
	}
	rest.Wait()
	for _, c := range columns {
		s.countRefusals(c)
	}
	table, faults := render(columns, wanted, []string{"a", "b"})
	t.Logf("%s\nin %v%s", table, time.Since(began).Round(time.Second), slowest(columns))
	for _, fault := range faults {
		t.Error(fault)
	}
	if path := os.Getenv(clientsReport); path != "" {
		if err := os.WriteFile(path, []byte(table), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// clientsReport names a file for the table.
const clientsReport = "LLMGW_CLIENTS_REPORT"

func parseWanted(text string) (clients []string, rows [][]string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		rows = append(rows, strings.Fields(line))
	}
	return rows[0][1:], rows[1:]
}

// columns makes each client's keys and waits until both boxes know them.
func (s *clientStage) columns(names []string) []*column {
	s.metrics = s.a.CLI("keys", "new", "metrics", "--scope", "metrics")
	narrow := s.a.CLI("keys", "new", "narrow", "--models", "another")
	boxes := []*Box{s.a, s.b}
	var out []*column
	for n, name := range names {
		c := &column{name: name, home: boxes[n%2], cells: map[cell]finding{}}
		c.keys.narrow = narrow
		c.keys.may = s.a.CLI("keys", "new", name)
		c.keys.limited = s.a.CLI("keys", "new", "limited-"+name, "--rpm", "4")
		out = append(out, c)
	}
	for _, c := range out {
		for _, key := range []string{c.keys.may, c.keys.limited} {
			Eventually(s.tb, 30*time.Second, "b knows the keys", func() (bool, string) {
				got, err := s.atB(key).Ask(seconds(s.tb, 10), "GET", "/v1/models", nil)
				return err == nil && got.Status == 200, fmt.Sprint(got, err)
			})
		}
	}
	return out
}

// counted sums the samples of a metric of a box that have these labels.
func (s *clientStage) counted(box, name string, labels ...string) (sum float64, err error) {
	at := s.atA(s.metrics)
	if box == "b" {
		at = s.atB(s.metrics)
	}
	ctx := seconds(s.tb, 20)
	answer, err := at.Ask(ctx, "GET", "/metrics", nil)
	if err != nil || answer.Status != 200 {
		return 0, fmt.Errorf("metrics of %s: %v %v", box, answer, err)
	}
	for line := range strings.Lines(answer.Body) {
		has := func(label string) bool { return strings.Contains(line, label) }
		if strings.HasPrefix(line, name+"{") && !slices.ContainsFunc(labels, func(l string) bool { return !has(l) }) {
			v, _ := metric(line, name)
			sum += v
		}
	}
	return sum, nil
}

// idle reports in a word or two whether the stream that the client just left at a
// box ended there as one that was left, and whether the engine stopped for it.
func (s *clientStage) idle(c *column, box string) string {
	deadline := time.Now().Add(30 * time.Second)
	for ; ; time.Sleep(100 * time.Millisecond) {
		left, err := s.counted(box, "llmgw_requests_total", `code="499"`, fmt.Sprintf(`key="%s"`, c.name))
		if err == nil && left >= 1 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Sprintf("box %s counts %v streams that were left: %v", box, left, err)
		}
	}
	// 3,000 tokens take this engine much longer than it has here. It is not asked
	// often, so the first time not at once.
	time.Sleep(300 * time.Millisecond)
	for deadline = time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Second) {
		text, err := s.engine.Get("/metrics")
		n, _ := metric(text, "llamacpp:requests_processing")
		if err == nil && n == 0 {
			return "idle"
		}
		if time.Now().After(deadline) {
			return fmt.Sprintf("the engine works on %v requests: %v", n, err)
		}
	}
}

// useUp asks with a client's limited key until it is refused. Done again and again,
// it shortens the wait of the client: where a part of the count is of the minute
// before there is room for one request each 15 s, else not before the next minute.
func (s *clientStage) useUp(c *column) {
	at := s.laptop.API(c.home, c.keys.limited)
	for range 10 {
		got, err := at.Ask(seconds(s.tb, 60), "POST", "/v1/chat/completions", Chat("smollm2", "Hi", false, map[string]any{"max_tokens": 1}))
		switch {
		case err == nil && got.Status == 429:
			c.spent++
			return
		case err != nil || got.Status != 200:
			s.tb.Fatalf("limited key of %s: %v %v", c.name, got, err)
		}
	}
	s.tb.Fatalf("the limited key of %s allows 10 requests in a moment", c.name)
}

// countRefusals proves by the box's own count that the client waited: one that
// comes back too early is refused again.
func (s *clientStage) countRefusals(c *column) {
	at := cell{"retry", c.home.Name}
	f := c.cells[at]
	if f.Outcome != "ok" {
		return
	}
	most := meanwhile // each of its requests may have had to wait, once
	if _, ok := c.cells[cell{"429", c.home.Name}]; ok {
		most = 2 // the refusal that it told of, and the one that it waited for
	}
	got, err := s.counted(c.home.Name, "llmgw_requests_total", `code="429"`, fmt.Sprintf(`key="limited-%s"`, c.name))
	if n := int(got) - c.spent; err != nil || n < 1 || n > most {
		c.cells[at] = finding{Outcome: "failed", Detail: fmt.Sprintf("it was refused %d times, want 1 to %d: %v", n, most, err)}
	}
}

// clientVersions are the versions that are pinned.
func clientVersions(t *testing.T) map[string]string {
	t.Helper()
	v := map[string]string{
		"openai": pinned(pythonPins, "openai"), "langchain": pinned(pythonPins, "langchain-openai"),
		"anthropic": pinned(pythonPins, "anthropic"), "ollama": pinned(pythonPins, "ollama"),
		"llm": pinned(pythonPins, "llm"), "litellm": pinned(litellmPins, "litellm-core"), "npm": nodeVersion(t),
	}
	out, err := tool("curl", "--version")
	if err != nil {
		Skip(t, "curl is one of the clients: %v", err)
	}
	v["curl"] = strings.Fields(out)[1]
	return v
}

// clientFiles puts the programs of the clients where the laptop sees them.
func (s *clientStage) clientFiles() string {
	dir := filepath.Join(s.Dir(), "clients")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	for name, text := range clientPrograms(s.tb) {
		s.File(filepath.Join("clients", name), text, 0o644)
	}
	return dir
}
