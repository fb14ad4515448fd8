package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Variables that say which daemon is tested.
const (
	binaryVariable = "LLMGW_LAB_BINARY" // path of a daemon that was built elsewhere, with -tags lab
	raceVariable   = "LLMGW_LAB_RACE"   // "1": build the daemon with the race detector
)

// build compiles the daemon once for the test binary's life. The tag adds nothing
// but a clock that can be set off.
var build = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(binaryVariable); path != "" {
		return filepath.Abs(path)
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	o, err := self()
	if err != nil {
		return "", err
	}
	// The name is one of ours, so the next lab sweeps it should we be killed.
	dir, err := os.MkdirTemp("", o.prefix()+"bin-*")
	if err != nil {
		return "", fmt.Errorf("build daemon: %w", err)
	}
	path := filepath.Join(dir, "llmgw")
	args := []string{"build", "-tags=lab", "-trimpath", "-ldflags=-s -w", "-o", path}
	if os.Getenv(raceVariable) == "1" {
		args = []string{"build", "-tags=lab", "-race", "-o", path}
	}
	cmd := exec.Command("go", append(args, "./cmd/llmgw")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build daemon: %w\n%s", err, out)
	}
	return path, nil
})

// Binary is the daemon and command line under test.
func Binary(tb testing.TB) string {
	tb.Helper()
	path, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// removeBuilds removes this process's binaries.
func removeBuilds() {
	if o, err := self(); err == nil {
		_ = sweepPrefix(o.prefix())
	}
}
