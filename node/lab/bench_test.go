package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"
)

// The load of the benchmark: streams of 64 tokens, one token each 5 ms, 64
// streams at once. A round is long enough that the kernel's clock tick of
// 10 ms is far below 1 % of what is measured.
const (
	benchTokens   = 64
	benchInterval = 5 // milliseconds
	benchAtOnce   = 64
	benchRound    = 512 // streams of one target in one round
)

// proxyPort is where the plain proxy listens on box b.
const proxyPort = 9000

// benchTarget is one way from the client to the engine.
type benchTarget struct {
	name string
	at   *API
	pids []int // processes whose CPU counts: neither engine nor client
	cpu  time.Duration
	wall time.Duration
	n    int
}

// BenchmarkRelay measures CPU time per stream of
//
//	proxy: a plain net/http reverse proxy on the holder that buffers the body,
//	local: our daemon on the holder, to its own engine,
//	mesh:  our daemon on another box, over the mesh to the holder; both count,
//
// in turns, against one simulated engine, so that what the machine does
// meanwhile falls on all three. The daemons' idle work is in their numbers.
func BenchmarkRelay(b *testing.B) {
	s := newScene(b)
	s.a.Start()
	s.b.Start()
	s.b.Join(s.a)
	s.serveSim("sim", Sim{Tokens: benchTokens, IntervalMS: benchInterval})
	key := s.key()
	engine := s.b.Engine(SimEngine)
	proxy := s.startProxy(engine)
	targets := []*benchTarget{
		{name: "proxy", at: s.laptop.API(s.b, engine.Key()), pids: []int{proxy}},
		{name: "local", at: s.atB(key), pids: []int{s.b.PID()}},
		{name: "mesh", at: s.atA(key), pids: []int{s.a.PID(), s.b.PID()}},
	}
	targets[0].at.Base = fmt.Sprintf("http://%s:%d", s.b.IP(), proxyPort)
	for _, t := range targets { // warm: connections, heap, the page cache
		t.round(b, benchAtOnce)
		t.cpu, t.wall, t.n = 0, 0, 0
	}
	for b.Loop() {
		for _, t := range targets {
			t.round(b, benchRound)
		}
	}
	report(b, targets)
}

func report(b *testing.B, targets []*benchTarget) {
	b.Helper()
	base := targets[0].perStream()
	for _, t := range targets {
		b.ReportMetric(t.perStream(), t.name+"-cpu-ms/stream")
		b.Logf("%-5s %6.3f ms CPU a stream, %5.2f x proxy, %d streams, %.0f streams/s",
			t.name, t.perStream(), t.perStream()/base, t.n, float64(t.n)/t.wall.Seconds())
	}
	for _, t := range targets[1:] {
		b.ReportMetric(t.perStream()/base, t.name+"/proxy")
	}
}

func (t *benchTarget) perStream() float64 {
	return t.cpu.Seconds() * 1000 / float64(t.n)
}

// round runs n streams, benchAtOnce at a time, and adds what they cost.
func (t *benchTarget) round(b *testing.B, n int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	before, began := t.spent(b), time.Now()
	work := make(chan struct{}, n)
	for range n {
		work <- struct{}{}
	}
	close(work)
	errs := make(chan error, n)
	var wg sync.WaitGroup
	for range benchAtOnce {
		wg.Go(func() {
			for range work {
				errs <- drain(ctx, t.at)
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			b.Fatalf("%s: %v", t.name, err)
		}
	}
	t.cpu += t.spent(b) - before
	t.wall += time.Since(began)
	t.n += n
}

// drain takes one stream and counts its events without decoding them: the
// client shares the machine with what is measured.
func drain(ctx context.Context, at *API) error {
	st, err := at.Stream(ctx, "/v1/chat/completions", Chat("sim", "Hi", true, nil))
	if err != nil {
		return err
	}
	defer st.Close()
	raw, err := io.ReadAll(st.read)
	if err != nil {
		return err
	}
	if n := bytes.Count(raw, []byte("data: {")); n < benchTokens || !bytes.HasSuffix(bytes.TrimSpace(raw), []byte("data: [DONE]")) {
		return fmt.Errorf("a stream of %d events ends with %q", n, raw[max(0, len(raw)-100):])
	}
	return nil
}

func (t *benchTarget) spent(b *testing.B) time.Duration {
	b.Helper()
	var sum time.Duration
	for _, pid := range t.pids {
		p, err := ReadProcess(pid)
		if err != nil {
			b.Fatal(err)
		}
		sum += p.CPU
	}
	return sum
}

// startProxy runs the plain proxy as a process of its own on box b.
func (s scene) startProxy(e *Engine) (pid int) {
	s.tb.Helper()
	cmd, err := Helper("proxy")
	if err != nil {
		s.tb.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "PROXY_TO="+e.URL())
	cmd.Stderr = os.Stderr
	if err := s.b.start(cmd); err != nil {
		s.tb.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	at := s.laptop.API(s.b, e.Key())
	at.Base = fmt.Sprintf("http://%s:%d", s.b.IP(), proxyPort)
	Eventually(s.tb, startTimeout, "the plain proxy answers", func() (bool, string) {
		got, err := at.Ask(context.Background(), "GET", "/health", nil)
		return err == nil && got.Status == 200, fmt.Sprint(got, err)
	})
	return cmd.Process.Pid
}

// plainProxy is what anybody would write: the body read whole, as ours is, then
// the standard library's reverse proxy with immediate flushes.
func plainProxy() int {
	to, err := url.Parse(os.Getenv("PROXY_TO"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		return 1
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1,
		Transport:     &http.Transport{MaxIdleConnsPerHost: 2 * benchAtOnce, DisableCompression: true},
	}
	err = http.ListenAndServe(fmt.Sprintf("0.0.0.0:%d", proxyPort), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		proxy.ServeHTTP(w, r)
	}))
	if !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, "proxy:", err)
	}
	return 1
}
