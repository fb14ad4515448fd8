package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Result is what a command on a box did.
type Result struct {
	Argv   []string
	Stdout string
	Stderr string
	Code   int // exit status; -1: ended by a signal or by the context
	Took   time.Duration
}

// Out is the standard output without white space around it.
func (r Result) Out() string { return strings.TrimSpace(r.Stdout) }

func (r Result) String() string {
	return fmt.Sprintf("$ %s\nexit %d after %v\nstdout: %s\nstderr: %s",
		strings.Join(r.Argv, " "), r.Code, r.Took.Round(time.Millisecond), r.Stdout, r.Stderr)
}

// start starts cmd inside the box with the box's environment: nothing of the
// tester's own settings reaches it.
func (b *Box) start(cmd *exec.Cmd) error {
	if cmd.Env == nil {
		cmd.Env = b.environ()
	}
	if cmd.Dir == "" {
		cmd.Dir = b.Dir
	}
	if err := b.ns.do(cmd.Start); err != nil {
		return fmt.Errorf("start %s on box %s: %w", filepath.Base(cmd.Path), b.Name, err)
	}
	return nil
}

// environ is what a login on the box has. Later entries win, so Env overrides.
func (b *Box) environ() []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + filepath.Join(b.Dir, "home"),
		"TMPDIR=" + filepath.Join(b.Dir, "tmp"),
		"LANG=C.UTF-8", "TZ=UTC", "NO_COLOR=1",
		"LLMGW_CACHE_DIR=" + CacheDir(),
	}
	return append(env, b.Env...)
}

// Run runs a command on the box and waits for it. The error is nil whatever the
// exit status, as long as the command could be started.
func (b *Box) Run(ctx context.Context, argv ...string) (Result, error) {
	return b.RunInput(ctx, "", argv...)
}

// RunInput is Run with standard input.
func (b *Box) RunInput(ctx context.Context, input string, argv ...string) (Result, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return Result{}, fmt.Errorf("run on box %s: %w", b.Name, err)
	}
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.WaitDelay = 5 * time.Second // a grandchild may hold the pipes
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	began := time.Now()
	if err := b.start(cmd); err != nil {
		return Result{}, err
	}
	err = cmd.Wait()
	r := Result{Argv: argv, Stdout: stdout.String(), Stderr: stderr.String(), Took: time.Since(began)}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		r.Code = exit.ExitCode()
	case err != nil:
		return r, fmt.Errorf("run on box %s: %w", b.Name, err)
	}
	return r, nil
}

// cliTimeout bounds one command line; the slowest installs an engine.
const cliTimeout = 10 * time.Minute

// Try runs llmgw on the box against its daemon, whatever comes of it.
func (b *Box) Try(args ...string) Result {
	b.tb.Helper()
	return b.TryInput("", args...)
}

// TryInput is Try with standard input.
func (b *Box) TryInput(input string, args ...string) Result {
	b.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cliTimeout)
	defer cancel()
	argv := append([]string{Binary(b.tb), "--state-dir", b.StateDir()}, args...)
	r, err := b.RunInput(ctx, input, argv...)
	if err != nil {
		b.tb.Fatalf("llmgw %s: %v", strings.Join(args, " "), err)
	}
	return r
}

// CLI runs llmgw on the box and returns its standard output, trimmed; a non-zero
// exit status fails the test.
func (b *Box) CLI(args ...string) string {
	b.tb.Helper()
	r := b.Try(args...)
	if r.Code != 0 {
		b.tb.Fatalf("box %s: llmgw %s failed:\n%s", b.Name, strings.Join(args, " "), r)
	}
	return r.Out()
}

// Dial connects from inside the box. The address must be a literal: a look-up
// would run on another thread, outside the box.
func (b *Box) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := b.ns.do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen opens a port inside the box.
func (b *Box) Listen(network, address string) (net.Listener, error) {
	var ln net.Listener
	err := b.ns.do(func() (err error) {
		ln, err = new(net.ListenConfig).Listen(context.Background(), network, address)
		return err
	})
	return ln, err
}
