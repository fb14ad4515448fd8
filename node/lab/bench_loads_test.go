package lab

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"
)

func perSecOf(r benchRun) float64  { return r.perSec }
func perCallOf(r benchRun) float64 { return r.perCall }

// answersWithinBench waits until a box knows a key that was made on another.
func answersWithinBench(b *testing.B, at *API) {
	b.Helper()
	Eventually(b, 30*time.Second, "the key works", func() (bool, string) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		got, err := at.Ask(ctx, http.MethodGet, "/v1/models", nil)
		return err == nil && got.Status == http.StatusOK, fmt.Sprint(got, err)
	})
}

// BenchmarkBodies sends prompts of 1 and 8 MB, answered by one token: what a
// long conversation costs before its first byte.
func BenchmarkBodies(b *testing.B) {
	st := newBenchStage(b, Sim{Tokens: 1})
	sizes := []struct {
		name            string
		bytes           int
		streams, atOnce int
	}{{"1 MB", 1 << 20, 32, 8}, {"8 MB", 8 << 20, 8, 4}}
	for b.Loop() {
		for _, size := range sizes {
			direct, local, mesh := st.direct(), st.local("local", st.key), st.mesh()
			st.proxy.runs = nil
			if st.nginx != nil {
				st.nginx.runs = nil
			}
			targets := present(direct, st.proxy, st.nginx, local, mesh)
			load := benchLoad{body: benchBody(b, size.bytes, nil), streams: size.streams, atOnce: size.atOnce, tokens: 1, rounds: 5}
			load.run(b, targets)
			table := newBenchTable("bodies of "+size.name+fmt.Sprintf(", %d at once", size.atOnce), "", "CPU ms/request", "x proxy", "first byte ms", "added", "events/write", "requests/s")
			for _, t := range targets {
				t.tell(table, st.proxy, direct)
			}
			table.print(b, st.notes...)
		}
	}
}

// BenchmarkRates drives 128 and 256 streams at 500 and at 5,000 tokens a second each,
// five of the latter in a piece, and as fast as the engine makes them: it gives those
// in pieces of 16 KB, as engines do that have many tokens in hand.
func BenchmarkRates(b *testing.B) {
	rates := []struct {
		name string
		sim  Sim
	}{{"500 tokens/s a stream", Sim{Tokens: 256, IntervalMS: 2}}, {"5,000 tokens/s a stream", Sim{Tokens: 1000, IntervalMS: 1, Together: 5}}, {"all tokens at once", Sim{Tokens: 1000}}}
	for b.Loop() {
		for _, rate := range rates {
			st := newBenchStage(b, rate.sim)
			for _, atOnce := range []int{128, 256} {
				local, mesh := st.local("local", st.key), st.mesh()
				st.proxy.runs = nil
				if st.nginx != nil {
					st.nginx.runs = nil
				}
				targets := present(st.proxy, st.nginx, local, mesh)
				load := benchLoad{body: benchBody(b, 2, nil), streams: atOnce, atOnce: atOnce, tokens: rate.sim.Tokens, rounds: 3}
				load.run(b, targets)
				table := newBenchTable(fmt.Sprintf("rates: %d streams, %s, %d tokens each", atOnce, rate.name, rate.sim.Tokens), "", "CPU ms/stream", "x proxy", "first byte ms", "added", "events/write", "streams/s")
				for _, t := range targets {
					t.tell(table, st.proxy, nil)
				}
				table.print(b, st.notes...)
			}
		}
	}
}

// BenchmarkIdleStreams opens 500 streams that say nothing after their first
// token, and sees what they add to the memory of whoever relays them. Each
// process is fresh, so that what earlier work left in its heap hides nothing.
func BenchmarkIdleStreams(b *testing.B) {
	const streams = 500
	for b.Loop() {
		st := newBenchStage(b, Sim{Tokens: 2, IntervalMS: 50_000})
		entry := &benchTarget{name: "mesh, entry", at: st.atA(st.key), pids: []int{st.a.PID()}}
		holder := &benchTarget{name: "mesh, holder", pids: []int{st.b.PID()}}
		table := newBenchTable(fmt.Sprintf("memory of %d idle streams", streams), "", "KB a stream")
		mesh := present(entry, holder)
		for i, kb := range st.idle(b, entry.at, streams, mesh) {
			table.row(mesh[i].name, fmt.Sprintf("%.1f", kb))
		}
		for _, t := range present(st.proxy, st.nginx) {
			table.row(t.name, fmt.Sprintf("%.1f", st.idle(b, t.at, streams, []*benchTarget{t})[0]))
		}
		fresh := newBenchStage(b, Sim{Tokens: 2, IntervalMS: 50_000})
		local := fresh.local("local", fresh.key)
		table.row(local.name, fmt.Sprintf("%.1f", fresh.idle(b, local.at, streams, []*benchTarget{local})[0]))
		table.print(b, st.notes...)
	}
}

// idle opens n streams at a way to the engine and tells what each adds, in KB, to
// the memory of the targets.
func (st *benchStage) idle(b *testing.B, at *API, n int, targets []*benchTarget) (kb []float64) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	body := benchBody(b, 2, nil)
	var before []int64
	for _, t := range targets {
		before = append(before, t.rss(b))
	}
	for range n {
		s, err := at.Stream(ctx, "/v1/chat/completions", body)
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		if _, err := s.read.Peek(1); err != nil {
			b.Fatal(err)
		}
	}
	for i, t := range targets {
		kb = append(kb, float64(t.rss(b)-before[i])/float64(n)/1024)
	}
	return kb
}
