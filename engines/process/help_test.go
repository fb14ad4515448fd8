package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHelpIsAskedOncePerBinary(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	path := script(t, `echo x >> `+count+`; [ "$1" = --help ] && echo "  --metrics  on"`)
	c := newHelpCache()
	for range 3 {
		f, err := c.ask(t.Context(), path, []string{"--help"}, nil, t.TempDir())
		if err != nil || !f.Has("--metrics") || f.Has("--other") {
			t.Fatalf("%+v, %v", f, err)
		}
	}
	if b, err := os.ReadFile(count); err != nil || string(b) != "x\n" {
		t.Errorf("asked %q, %v", b, err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho '  --other  on, longer'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if f, err := c.ask(t.Context(), path, []string{"--help"}, nil, t.TempDir()); err != nil || !f.Has("--other") {
		t.Errorf("a new binary was not asked: %v", err)
	}
}

func TestHelpSaysWhatIsWrongWithABinary(t *testing.T) {
	c := newHelpCache()
	plain := filepath.Join(t.TempDir(), "plain")
	appendTo(t, plain, "text")
	for name, tc := range map[string]struct{ path, says string }{
		"missing":        {filepath.Join(t.TempDir(), "none"), "no such file"},
		"not executable": {plain, "permission denied"},
		"library":        {script(t, `echo "error while loading shared libraries: libx.so" >&2; exit 127`), "libx.so"},
		"silent":         {script(t, `exit 0`), "no output"},
	} {
		if _, err := c.ask(t.Context(), tc.path, []string{"--help"}, nil, t.TempDir()); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
