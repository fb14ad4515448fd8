package fetch

import (
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// pipRun is one running pip: it has no byte progress that all versions speak,
// so the size of the file that grows in its work folder is watched.
type pipRun struct {
	w         *Wheels
	work      string
	report    func(Progress)
	out, errs *tail
	checked   bool // the announced size was held against the free space
}

type commander func(ctx context.Context, work string, command []string, args ...string) *exec.Cmd

// do runs pip to its end. A disk that fills up ends it early.
func (r *pipRun) do(ctx context.Context, make commander, pip []string, temp string, args ...string) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	cmd := make(ctx, temp, pip, args...)
	cmd.Stdout, cmd.Stderr = r.out, r.errs
	if err := cmd.Start(); err != nil {
		return noPip("pip cannot be started: " + err.Error())
	}
	ended := waitFor(cmd)
	tick := time.NewTicker(r.w.poll)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if cause := context.Cause(ctx); err != nil && cause != nil {
				return cause
			}
			return err
		case <-tick.C:
			if err := r.look(); err != nil {
				stop(err)
			}
		}
	}
}

func waitFor(cmd *exec.Cmd) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return ended
}

// look reports how much is here and checks the free space.
func (r *pipRun) look() error {
	total, done := announced(r.out.String()), largestFile(r.work)
	phase := PhaseResolving
	if total > 0 || done > 0 {
		phase = PhaseDownloading
	}
	if total > 0 {
		done = min(done, total) // pip announces a rounded size
	}
	r.report(Progress{Phase: phase, Done: done, Total: total})
	need := int64(0)
	if total > 0 && !r.checked {
		// pip writes a wheel twice: to its temporary folder, then to its place.
		need, r.checked = 2*total-done, true
	}
	free, err := r.w.free(r.work)
	if err == nil && free-keepFree < need {
		return NoSpace("wheel", r.work, max(need, total-done), free-keepFree)
	}
	return nil
}

// downloading matches pip's line about a wheel with its size; the metadata
// that pip reads first has a suffix behind .whl.
var downloading = regexp.MustCompile(`(?m)^\s*Downloading \S+\.whl \(([0-9.]+) (bytes|kB|MB|GB)\)`)

// announced is the size in bytes that pip said, rounded; 0 when it did not yet.
func announced(out string) int64 {
	m := downloading.FindStringSubmatch(out)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0
	}
	switch m[2] {
	case "kB":
		n *= 1e3
	case "MB":
		n *= 1e6
	case "GB":
		n *= 1e9
	}
	return int64(min(n, 1<<50))
}

// largestFile is the size of the largest file below dir. Files come and go
// while it looks, so what is gone is passed over.
func largestFile(dir string) int64 {
	var largest int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			largest = max(largest, info.Size())
		}
		return nil
	})
	return largest
}

// tail keeps the last bytes that were written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

// tailSize is enough for pip's longest complaints.
const tailSize = 32 << 10

// Write never fails: a program must not stop because nobody reads.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
