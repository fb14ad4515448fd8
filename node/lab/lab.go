package lab

import (
	"crypto/rand"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ciVariable, when "1", turns every skip into a failure: on the machine that
// decides, a test that did not run proves nothing.
const ciVariable = "LLMGW_CI"

// Skip says why a test cannot run here and skips it, or fails it in CI.
func Skip(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if os.Getenv(ciVariable) == "1" {
		tb.Fatalf(format, args...)
	}
	tb.Skipf(format, args...)
}

// Lab is a switch with boxes on it, made for one test and removed with it.
type Lab struct {
	tb     testing.TB
	id     string // prefix of all its names
	dir    string // everything its boxes write
	sw     *namespace
	boxes  []*Box
	laid   int // segments
	reaper *reaper
}

// New builds an empty lab. It needs root and iproute2 and skips without them.
// Everything is removed when the test ends; the boxes' logs are printed before
// that when it failed.
func New(tb testing.TB) *Lab {
	tb.Helper()
	if os.Geteuid() != 0 {
		Skip(tb, "the lab makes network namespaces, which needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		Skip(tb, "the lab needs the ip command of iproute2: %v", err)
	}
	if testing.Short() {
		Skip(tb, "the lab starts real processes: skipped by -short")
	}
	if err := sweepDead(); err != nil {
		tb.Logf("remove what a former run left: %v", err)
	}
	l := &Lab{tb: tb}
	tb.Cleanup(l.close)
	if err := l.open(); err != nil {
		tb.Fatalf("build lab: %v", err)
	}
	return l
}

func (l *Lab) open() error {
	o, err := self()
	if err != nil {
		return err
	}
	var unique [3]byte
	_, _ = rand.Read(unique[:])
	l.id = o.prefix() + hex.EncodeToString(unique[:]) + "-"
	// The reaper comes first: from here on nothing is made without it.
	if l.reaper, err = startReaper(l.id); err != nil {
		return err
	}
	if l.dir, err = os.MkdirTemp("", l.id+"*"); err != nil {
		return fmt.Errorf("make lab directory: %w", err)
	}
	if l.sw, err = newNamespace(l.id + "switch"); err != nil {
		return err
	}
	return l.lay(0)
}

// close prints, then removes. The work is the reaper's also on the good path,
// so that its code is exercised by every test.
func (l *Lab) close() {
	for _, b := range l.boxes {
		if word := b.outcry(); word != "" {
			l.tb.Errorf("the daemon of box %s printed:\n%s", b.Name, word)
		}
	}
	if l.tb.Failed() {
		for _, b := range l.boxes {
			l.tb.Log(b.Report())
		}
	}
	for _, b := range l.boxes {
		b.close()
	}
	if l.sw != nil {
		_ = l.sw.close()
	}
	if l.reaper == nil {
		return
	}
	if err := l.reaper.release(); err != nil {
		l.tb.Errorf("remove lab: %v", err)
	}
}

// Dir is a directory that all boxes see, removed with the lab.
func (l *Lab) Dir() string { return l.dir }

// File writes a file into the lab's directory and returns its path.
func (l *Lab) File(name, content string, mode os.FileMode) string {
	l.tb.Helper()
	path := filepath.Join(l.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		l.tb.Fatalf("write %s: %v", name, err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		l.tb.Fatalf("write %s: %v", name, err)
	}
	return path
}

// Box adds a box to the switch. Nothing runs on it until Start.
func (l *Lab) Box(name string) *Box { l.tb.Helper(); return l.BoxAt(0, name) }

// BoxAt adds a box whose home is a segment made by Segment.
func (l *Lab) BoxAt(home Segment, name string) *Box {
	l.tb.Helper()
	if name == "" || strings.ContainsAny(name, "/- .") {
		l.tb.Fatalf("box name %q must be one plain word", name)
	}
	b := &Box{lab: l, tb: l.tb, Name: name, home: home, number: len(l.boxes) + 1}
	l.boxes = append(l.boxes, b)
	if err := b.open(); err != nil {
		l.tb.Fatalf("build box %s: %v", name, err)
	}
	return b
}

// Main runs a test binary that uses the lab: TestMain calls it and exits with
// what it returns. It also is the entry of the reaper and of the helpers that
// the binary starts as further copies of itself.
func Main(m *testing.M, helpers map[string]func() int) int {
	if prefix := os.Getenv(reapVariable); prefix != "" {
		return reap(prefix, os.Stdin)
	}
	if helper, ok := helpers[os.Getenv(helperVariable)]; ok {
		flag.Parse() // m.Run would do it, and New asks for -short
		return helper()
	}
	defer removeBuilds()
	return m.Run()
}

// helperVariable names the helper that a copy of the test binary should be.
const helperVariable = "LLMGW_LAB_HELPER"

// Helper prepares a copy of the test binary that runs one of Main's helpers.
func Helper(name string, args ...string) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own binary: %w", err)
	}
	cmd := exec.Command(exe, append([]string{"-test.run=^$"}, args...)...)
	cmd.Env = append(os.Environ(), helperVariable+"="+name)
	return cmd, nil
}
