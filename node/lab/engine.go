package lab

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Words by which an engine's process is found.
const (
	LlamaServer = "llama-server"
	SimEngine   = "engine-sim"
)

// Sim is a weight file of the simulated engine.
type Sim struct {
	Version    int    `json:"llmgw_sim"`
	Tokens     int    `json:"tokens"`
	IntervalMS int    `json:"interval_ms"`  // 0: all tokens at once
	Together   int    `json:"per_interval"` // tokens at each interval; 0: one
	FirstMS    int    `json:"first_ms"`     // before the first token, as a prefill takes
	Slots      int    `json:"slots"`        // 0: no limit
	LoadMS     int    `json:"load_ms"`
	Fail       string `json:"fail,omitempty"` // "load" or "mid_stream"
}

// PullSim writes a weight file for the simulated engine and pulls it on b.
func (b *Box) PullSim(name string, s Sim) {
	b.tb.Helper()
	s.Version = 1
	raw, err := json.Marshal(s)
	if err != nil {
		b.tb.Fatal(err)
	}
	path := b.lab.File(b.Name+"-"+name+".json", string(raw), 0o644)
	b.CLI("pull", "file:"+path, "--as", name)
}

// Engine is an engine's process on a box, asked directly, past the daemon.
type Engine struct {
	Process
	box  *Box
	http *http.Client
	port int
	key  string
}

// Engine waits for the one process of this kind on the box.
func (b *Box) Engine(word string) *Engine {
	b.tb.Helper()
	return b.engine(b.Await(word, startTimeout))
}

// EngineOf finds the engine that serves a model, by the name on its command
// line, where the box runs several.
func (b *Box) EngineOf(model string) *Engine {
	b.tb.Helper()
	for _, p := range b.Processes("--alias") {
		if i := slices.Index(p.Args, "--alias"); i >= 0 && i+1 < len(p.Args) && p.Args[i+1] == model {
			return b.engine(p)
		}
	}
	b.tb.Fatalf("no engine on box %s serves %s", b.Name, model)
	return nil
}

// engine finds a process's port and key as the kernel tells them.
func (b *Box) engine(p Process) *Engine {
	b.tb.Helper()
	var ports []int
	Eventually(b.tb, startTimeout, "the engine listens", func() (bool, string) {
		var err error
		ports, err = p.ListenPorts()
		return len(ports) == 1, fmt.Sprint(ports, err)
	})
	env, err := p.Environ()
	if err != nil {
		b.tb.Fatal(err)
	}
	return &Engine{Process: p, box: b, http: b.Client(), port: ports[0], key: env["LLAMA_API_KEY"]}
}

// URL is where the engine listens on its box.
func (e *Engine) URL() string { return fmt.Sprintf("http://127.0.0.1:%d", e.port) }

// Key is what the engine wants to see.
func (e *Engine) Key() string { return e.key }

// Get asks the engine itself.
func (e *Engine) Get(path string) (string, error) {
	req, err := http.NewRequest(http.MethodGet, e.URL()+path, nil)
	if err != nil {
		return "", fmt.Errorf("ask engine: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+e.key)
	resp, err := e.http.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask engine: %w", err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("ask engine for %s: %s: %s", path, resp.Status, raw)
	}
	return string(raw), err
}

// Metric reads one number of the engine's own /metrics; labels are ignored.
func (e *Engine) Metric(name string) float64 {
	e.box.tb.Helper()
	text, err := e.Get("/metrics")
	if err != nil {
		e.box.tb.Fatal(err)
	}
	v, ok := metric(text, name)
	if !ok {
		e.box.tb.Fatalf("engine has no metric %s:\n%s", name, text)
	}
	return v
}

// metric sums the samples of one name in Prometheus' text format.
func metric(text, name string) (sum float64, found bool) {
	for scan := bufio.NewScanner(strings.NewReader(text)); scan.Scan(); {
		fields := strings.Fields(scan.Text())
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if bare, _, _ := strings.Cut(fields[0], "{"); bare != name {
			continue
		}
		if v, err := strconv.ParseFloat(fields[len(fields)-1], 64); err == nil {
			sum, found = sum+v, true
		}
	}
	return sum, found
}

// Processing is how many requests the engine works on, by its own count.
func (e *Engine) Processing() float64 {
	e.box.tb.Helper()
	return e.Metric("llamacpp:requests_processing")
}

// Gone waits until a process has ended.
func (b *Box) Gone(p Process, within time.Duration) {
	b.tb.Helper()
	Eventually(b.tb, within, fmt.Sprintf("pid %d (%s) has ended", p.PID, p.Program()), func() (bool, string) {
		return !slices.ContainsFunc(b.Processes(""), func(q Process) bool { return q.PID == p.PID && q.Start == p.Start }), "it runs"
	})
}
