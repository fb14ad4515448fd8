package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// benchTarget is one way from the client to the engine.
type benchTarget struct {
	name string
	at   *API
	pids []int // processes whose CPU counts: neither engine nor client
	runs []benchRun
}

// benchRun is what one round of one target cost.
type benchRun struct {
	cpu     float64 // milliseconds a stream
	first   float64 // milliseconds to the first byte, the median
	perSec  float64 // streams
	perCall float64 // events a write
}

// benchLoad is what each round of each target asks for.
type benchLoad struct {
	body            string
	streams, atOnce int
	tokens          int // events that a whole stream has at least
	rounds          int
}

// run asks all targets in turns, so that what the machine does meanwhile falls
// on all of them. The first turn, which warms connections and heaps, is short
// and not counted.
func (l benchLoad) run(b *testing.B, targets []*benchTarget) {
	b.Helper()
	for _, t := range targets {
		l.round(b, t, min(l.atOnce, l.streams))
	}
	for range l.rounds {
		for _, t := range targets {
			t.runs = append(t.runs, l.round(b, t, l.streams))
		}
	}
}

// round runs n streams of one target.
func (l benchLoad) round(b *testing.B, t *benchTarget, n int) benchRun {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	work := make(chan struct{}, n)
	for range n {
		work <- struct{}{}
	}
	close(work)
	firsts, errs := make(chan float64, n), make(chan error, n)
	cpu, writes, began := t.cpu(b), t.writes(b), time.Now()
	var wg sync.WaitGroup
	for range l.atOnce {
		wg.Go(func() {
			for range work {
				first, err := l.one(ctx, t.at)
				firsts <- first.Seconds() * 1000
				errs <- err
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	cpu, writes = t.cpu(b)-cpu, t.writes(b)-writes
	close(firsts)
	close(errs)
	for err := range errs {
		if err != nil {
			b.Fatalf("%s: %v", t.name, err)
		}
	}
	return benchRun{
		cpu: cpu / float64(n), first: median(slices.Collect(received(firsts))), perSec: float64(n) / took.Seconds(),
		perCall: float64(n*l.tokens) / max(writes, 1),
	}
}

func received[T any](c <-chan T) func(func(T) bool) {
	return func(yield func(T) bool) {
		for v := range c {
			if !yield(v) {
				return
			}
		}
	}
}

// one takes one stream and counts its events without decoding them: the client
// shares the machine with what is measured.
func (l benchLoad) one(ctx context.Context, at *API) (first time.Duration, err error) {
	began := time.Now()
	st, err := at.Stream(ctx, "/v1/chat/completions", l.body)
	if err != nil {
		return 0, err
	}
	defer st.Close()
	if _, err := st.read.Peek(1); err != nil {
		return 0, err
	}
	first = time.Since(began)
	raw, err := io.ReadAll(st.read)
	if err != nil {
		return 0, err
	}
	if n := bytes.Count(raw, []byte("data: {")); n < l.tokens || !bytes.HasSuffix(bytes.TrimSpace(raw), []byte("data: [DONE]")) {
		return 0, fmt.Errorf("a stream of %d events ends with %q", n, raw[max(0, len(raw)-100):])
	}
	return first, nil
}

// cpu is what the target's processes have used so far, in milliseconds. The
// scheduler counts it in nanoseconds; the clock ticks of a process's own line
// are far too coarse for a round.
func (t *benchTarget) cpu(b *testing.B) (ms float64) {
	b.Helper()
	for _, pid := range t.pids {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil || len(threads) == 0 {
			b.Fatalf("%s: process %d has no threads: %v", t.name, pid, err)
		}
		for _, file := range threads {
			raw, err := os.ReadFile(file)
			if errors.Is(err, os.ErrNotExist) {
				continue // the thread has ended
			} else if err != nil {
				b.Fatal(err)
			}
			spent, _, _ := strings.Cut(string(raw), " ")
			ns, err := strconv.ParseFloat(spent, 64)
			if err != nil {
				b.Fatalf("read %s: %v", file, err)
			}
			ms += ns / 1e6
		}
	}
	return ms
}

// writes is how many write calls the target's processes have made.
func (t *benchTarget) writes(b *testing.B) (n float64) {
	b.Helper()
	for _, pid := range t.pids {
		text, err := readProc(pid, "io")
		if err != nil {
			b.Fatal(err)
		}
		_, after, _ := strings.Cut(text, "syscw: ")
		line, _, _ := strings.Cut(after, "\n")
		calls, err := strconv.ParseFloat(line, 64)
		if err != nil {
			b.Fatalf("read writes of %d: %v", pid, err)
		}
		n += calls
	}
	return n
}

// rss is the resident memory of the target's processes in bytes.
func (t *benchTarget) rss(b *testing.B) (sum int64) {
	b.Helper()
	for _, pid := range t.pids {
		n, err := Process{PID: pid}.RSS()
		if err != nil {
			b.Fatal(err)
		}
		sum += n
	}
	return sum
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[(len(v)-1)/2]
}

// each is the median of one figure over the rounds.
func (t *benchTarget) each(figure func(benchRun) float64) float64 {
	var v []float64
	for _, r := range t.runs {
		v = append(v, figure(r))
	}
	return median(v)
}

func cpuOf(r benchRun) float64   { return r.cpu }
func firstOf(r benchRun) float64 { return r.first }

// over is the median over the rounds of a target's CPU against another's in the
// same round; 0: the other was not measured.
func (t *benchTarget) over(base *benchTarget) float64 {
	if base == nil {
		return 0
	}
	var v []float64
	for i, r := range t.runs {
		v = append(v, r.cpu/max(base.runs[i].cpu, 1e-9))
	}
	return median(v)
}
