package lab

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// benchStage is the usual scene with a simulated model on b and everything that
// the relay is compared with beside its engine.
type benchStage struct {
	scene
	key    string
	engine *Engine
	proxy  *benchTarget
	nginx  *benchTarget // nil: see notes
	notes  []string
}

func newBenchStage(b *testing.B, sim Sim) *benchStage {
	b.Helper()
	s := newScene(b)
	s.a.Start()
	s.b.Start()
	s.b.Join(s.a)
	s.b.PullSim("sim", sim)
	// Room for prompts of 8 MB.
	s.b.apply("version: 1\nmodels: {sim: {profiles: {default: {context: 4000000}}}}\n")
	s.load("sim", 15*time.Second)
	st := &benchStage{scene: s, key: s.key(), engine: s.b.Engine(SimEngine)}
	st.proxy = s.proxy(st.engine)
	var why string
	if st.nginx, why = s.nginx(st.engine); why != "" {
		st.notes = append(st.notes, why)
	}
	return st
}

// local is our daemon on the holder, mesh is our daemon on another box: both
// count there, with what they do in idleness.
func (st *benchStage) local(name, key string) *benchTarget {
	return &benchTarget{name: name, at: st.atB(key), pids: []int{st.b.PID()}}
}

func (st *benchStage) mesh() *benchTarget {
	return &benchTarget{name: "mesh", at: st.atA(st.key), pids: []int{st.a.PID(), st.b.PID()}}
}

// direct asks the engine itself, from its own box.
func (st *benchStage) direct() *benchTarget {
	return &benchTarget{name: "engine itself", at: &API{HTTP: st.b.Client(), Base: st.engine.URL(), Key: st.engine.Key()}}
}

// present leaves out what is not there.
func present(targets ...*benchTarget) (out []*benchTarget) {
	for _, t := range targets {
		if t != nil {
			out = append(out, t)
		}
	}
	return out
}

// benchBody is a request for a stream, with a prompt of so many bytes.
func benchBody(b *testing.B, promptBytes int, more map[string]any) string {
	b.Helper()
	text := strings.Repeat("All work and no play. ", promptBytes/22+1)[:promptBytes]
	raw, err := json.Marshal(Chat("sim", text, true, more))
	if err != nil {
		b.Fatal(err)
	}
	return string(raw)
}

// BenchmarkRelay measures CPU time per stream of 64 tokens, one each 5 ms, 64
// streams at once, of
//
//	proxy: a plain net/http reverse proxy on the holder that buffers the body,
//	nginx and sglang-router beside it,
//	local: our daemon on the holder, to its own engine,
//	limited: the same with a key that has limits and budgets at two levels,
//	mesh:  our daemon on another box, over the mesh to the holder; both count.
func BenchmarkRelay(b *testing.B) {
	st := newBenchStage(b, Sim{Tokens: 64, IntervalMS: 5})
	sglang, why := st.sglang(st.engine)
	if why != "" {
		st.notes = append(st.notes, why)
	}
	limited := st.a.CLI("keys", "new", "limited", "--rpm", "900k", "--tpm", "900M", "--parallel", "4000",
		"--budget-tokens-day", "900M", "--budget-tokens-month", "900M")
	answersWithinBench(b, st.atB(limited))
	direct, local, metered, mesh := st.direct(), st.local("local", st.key), st.local("limited", limited), st.mesh()
	load := benchLoad{body: benchBody(b, 2, nil), streams: 256, atOnce: 64, tokens: 64, rounds: 9}
	for b.Loop() {
		load.run(b, present(direct, st.proxy, st.nginx, sglang, local, metered, mesh))
	}
	table := newBenchTable("relay: streams of 64 tokens, one each 5 ms, 64 at once", "", "CPU ms/stream", "x proxy", "first byte ms", "added", "events/write", "streams/s")
	for _, t := range present(direct, st.proxy, st.nginx, sglang, local, metered, mesh) {
		t.tell(table, st.proxy, direct)
	}
	added := local.each(firstOf) - direct.each(firstOf)
	table.row()
	table.row("", "is", "target")
	table.row("local / proxy", times(local.over(st.proxy)), verdict(local.over(st.proxy), 0.8))
	if st.nginx != nil {
		table.row("local / nginx", times(local.over(st.nginx)), verdict(local.over(st.nginx), 1.3))
	}
	table.row("local, first byte added", ms(added), verdict(added, 1)+" ms")
	table.row("mesh / proxy", times(mesh.over(st.proxy)), verdict(mesh.over(st.proxy), 1.8))
	if sglang != nil {
		table.row("local / sglang-router", times(local.over(sglang)), verdict(local.over(sglang), 0.7))
	}
	table.row("limited / local", times(metered.over(local)), verdict(metered.over(local), 1.05))
	table.print(b, st.notes...)
	b.ReportMetric(local.over(st.proxy), "local/proxy")
	b.ReportMetric(mesh.over(st.proxy), "mesh/proxy")
	b.ReportMetric(metered.over(local), "limited/local")
}

// tell adds a target's line to a table.
func (t *benchTarget) tell(table *benchTable, proxy, direct *benchTarget) {
	first := t.each(firstOf)
	if len(t.pids) == 0 {
		table.row(t.name, "-", "-", ms(first), "-", "-", fmt.Sprintf("%.0f", t.each(perSecOf)))
		return
	}
	added := "-"
	if direct != nil {
		added = ms(first - direct.each(firstOf))
	}
	table.row(t.name, ms(t.each(cpuOf)), times(t.over(proxy)), ms(first), added, fmt.Sprintf("%.1f", t.each(perCallOf)), fmt.Sprintf("%.0f", t.each(perSecOf)))
}
