// Package sim owns the simulated engine: a real HTTP server with the routes,
// answers and metrics of llama.cpp's llama-server, which computes nothing. It
// stands where numbers must repeat, or where faults must come on demand.
//
// Its model file is a JSON object (Params). What it generates is fixed: the
// text of n tokens is Text(n), whatever was asked. It runs as a process of its
// own through Main, or inside a test through New.
//
// Of concurrency there is one rule: a generation holds a slot from its first
// to its last token, waits for one in no promised order, and gives it back
// also when its client has left.
package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// closeLimit is how long requests may go on after the engine was told to end.
const closeLimit = time.Second

// Main is the simulated engine as a process; args come after the verb. The key
// is LLAMA_API_KEY of env. It serves until ctx ends, and returns the exit
// status: 0 told to end, 1 cannot load or serve, 2 bad arguments.
func Main(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("engine-sim", flag.ContinueOnError)
	fs.SetOutput(stderr)
	model := fs.String("model", "", "parameter `file`")
	alias := fs.String("alias", "sim", "model `name` that is served")
	host := fs.String("host", "127.0.0.1", "`address` to listen on")
	port := fs.Int("port", 8080, "`port` to listen on")
	ctxSize := fs.Int("ctx-size", 4096, "`tokens` of one request")
	embeddings := fs.Bool("embeddings", false, "answer embeddings")
	kvLive := fs.String("kv-events", "", "unix socket `path` that KV events are published at")
	kvReplay := fs.String("kv-replay", "", "unix socket `path` that sends them again")
	if err := fs.Parse(args); err != nil || fs.NArg() > 0 {
		return 2
	}
	params, err := readParams(*model)
	if err != nil {
		fmt.Fprintln(stderr, "error loading model:", err)
		return 1
	}
	s := New(Config{
		Params: params, Alias: *alias, Key: lookupEnv(env, "LLAMA_API_KEY"),
		Context: *ctxSize, Embeddings: *embeddings, Path: *model,
	})
	if *kvLive != "" {
		if err := s.events.listen(ctx, *kvLive, *kvReplay); err != nil {
			fmt.Fprintln(stderr, "cannot publish KV events:", err)
			return 1
		}
		defer s.events.close()
	}
	l, err := net.Listen("tcp", net.JoinHostPort(*host, strconv.Itoa(*port)))
	if err != nil {
		fmt.Fprintf(stderr, "couldn't bind HTTP server socket, hostname: %s, port: %d: %v\n", *host, *port, err)
		return 1
	}
	return s.run(ctx, l, stdout, stderr)
}

func readParams(path string) (Params, error) {
	f, err := os.Open(path)
	if err != nil {
		return Params{}, err
	}
	defer f.Close()
	return ParseParams(f)
}

func lookupEnv(env []string, name string) string {
	value := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value = v
		}
	}
	return value
}

// run serves while it loads, as llama-server does, and until something ends it.
func (s *Server) run(ctx context.Context, l net.Listener, stdout, stderr io.Writer) int {
	if s.cfg.Params.Fail == FailIgnoreTerm {
		ctx = context.WithoutCancel(ctx)
	}
	s.loading.Store(true)
	srv := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	fmt.Fprintf(stdout, "listening on http://%s\n", l.Addr())

	if code, ended := s.load(ctx, stdout, stderr); ended {
		srv.Close()
		return code
	}
	var crash <-chan time.Time
	if s.cfg.Params.Fail == FailExit {
		timer := time.NewTimer(s.cfg.Params.exitAfter())
		defer timer.Stop()
		crash = timer.C
	}
	select {
	case <-ctx.Done():
		return shutdown(ctx, srv, stdout)
	case <-crash:
		fmt.Fprintln(stderr, "fatal error: simulated exit")
		return 134
	case <-s.crashed:
		fmt.Fprintln(stderr, "fatal error: simulated crash while decoding")
		return 134
	case err := <-served:
		fmt.Fprintln(stderr, "error:", err)
		return 1
	}
}

// load takes its time, with a line for each twentieth of it.
func (s *Server) load(ctx context.Context, stdout, stderr io.Writer) (code int, ended bool) {
	p := s.cfg.Params
	if p.Fail == FailStall {
		<-ctx.Done()
		return 0, true
	}
	const steps = 20
	for i := range steps {
		if p.LoadMS == 0 {
			break
		}
		if wait(ctx, p.load()/steps) != nil {
			return 0, true
		}
		fmt.Fprintf(stdout, "load_tensors: %d%%\n", (i+1)*100/steps)
	}
	if p.Fail == FailLoad {
		fmt.Fprintln(stderr, "llama_model_load: error loading model: simulated failure")
		fmt.Fprintln(stderr, "exiting due to model loading error")
		return 1, true
	}
	s.loading.Store(false)
	fmt.Fprintln(stdout, "model loaded")
	return 0, false
}

func shutdown(ctx context.Context, srv *http.Server, stdout io.Writer) int {
	fmt.Fprintln(stdout, "cleaning up before exit...")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil && !errors.Is(err, http.ErrServerClosed) {
		srv.Close()
	}
	return 0
}

// wait sleeps for d or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
