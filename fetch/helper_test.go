package fetch

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"llmgw/fetch/gguf/gguftest"
)

const roomy = int64(1) << 50

func hasRoom(string) (int64, error) { return roomy, nil }

// openStore opens a store with short polls.
func openStore(t *testing.T, o Options) *Store {
	t.Helper()
	if o.DiskFree == nil {
		o.DiskFree = hasRoom
	}
	s, err := Open(filepath.Join(t.TempDir(), "store"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.wheels.poll = 5 * time.Millisecond
	return s
}

func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func modelFile(t *testing.T, size int) (string, []byte) {
	t.Helper()
	content := gguftest.Model("test", size)
	return writeFile(t, filepath.Join(t.TempDir(), "m.gguf"), content), content
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// entry is one file of a wheel; a link when target is set.
type entry struct {
	name, target string
	content      []byte
}

func makeWheel(t *testing.T, entries ...entry) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "some_model-1.2-py3-none-any.whl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(0o644)
		if e.target != "" {
			h.SetMode(0o777 | os.ModeSymlink)
			e.content = []byte(e.target)
		}
		w, err := z.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// fakePip is a command that behaves as the shell text says. $dest is where
// the wheel is wanted, $want is NAME==VERSION, and each run leaves a line in
// the file that is returned. The shell is named first, so that no file that
// was just written has to be executed while another test forks.
func fakePip(t *testing.T, body string) (command []string, runs string) {
	t.Helper()
	dir := t.TempDir()
	runs = filepath.Join(dir, "runs")
	script := "set -u\necho run >>" + runs + "\n" +
		"for a; do case $a in --dest=*) dest=${a#--dest=};; *==*) want=$a;; esac; done\n" + body + "\n"
	return []string{"/bin/sh", writeFile(t, filepath.Join(dir, "pip.sh"), []byte(script))}, runs
}

func runCount(t *testing.T, runs string) int {
	t.Helper()
	b, err := os.ReadFile(runs)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(b), "run")
}

func wantKind(t *testing.T, err error, kind Kind, words ...string) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an Error of kind %s", err, kind)
	}
	if e.Kind != kind {
		t.Errorf("got kind %s, want %s: %v", e.Kind, kind, e)
	}
	for _, w := range words {
		if !strings.Contains(e.Error()+"\n"+e.Hint, w) {
			t.Errorf("%q is not said in %q, hint %q", w, e.Error(), e.Hint)
		}
	}
	return e
}

// wantClean checks that nothing half done is left.
func wantClean(t *testing.T, s *Store, blobs ...string) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(s.Dir(), partialDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		t.Errorf("left in %s: %s", partialDir, e.Name())
	}
	if got := s.Digests(); !slices.Equal(got, blobs) {
		t.Errorf("got blobs %v, want %v", got, blobs)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs) != 0 {
		t.Errorf("%d jobs are left", len(s.jobs))
	}
}

// recorder keeps what a progress callback saw.
type recorder struct {
	mu   sync.Mutex
	seen []Progress
}

func (r *recorder) see(p Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, p)
}

func (r *recorder) all() []Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// wantRising checks the promise of Progress, and the last state.
func (r *recorder) wantRising(t *testing.T, last Progress) {
	t.Helper()
	all := r.all()
	for i := 1; i < len(all); i++ {
		if all[i].Done < all[i-1].Done || all[i].Total > 0 && all[i].Total < all[i].Done {
			t.Errorf("progress went from %v to %v", all[i-1], all[i])
		}
	}
	if len(all) == 0 || all[len(all)-1] != last {
		t.Errorf("got %v, want %v at the end", all, last)
	}
}

// await polls for a condition that another process brings about.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited 10 s for %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
