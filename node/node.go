// Package node owns the composition of a daemon: its configuration, the order
// in which parts come up and go down, and the control loop that follows the
// mesh's assignments. Nothing imports it but cmd and its own tests.
//
// Boot, in order: the state directory's lock, the identity, the store, the
// public port (so that a port in use is said at once), the mesh, adoption of
// engines left running, the admin socket. The API answers from then on; engines
// follow when the control loop has settled.
//
// One goroutine, the control loop, decides and writes: it builds a view of the
// mesh, writes the assignments that this node is steward of, and makes the
// supervisor follow those that this node owns. Everybody else reads the last
// view, which is immutable.
package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"llmgw/crdt/store"
	"llmgw/engines/hardware"
	"llmgw/engines/install"
	"llmgw/engines/process"
	"llmgw/fetch"
	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/router"
	"llmgw/router/keys"
	"llmgw/router/limits"
	"llmgw/ui"

	"github.com/prometheus/client_golang/prometheus"
)

// Build is what the linker knows of this program.
type Build struct {
	Version string
}

// Node is one running daemon.
type Node struct {
	cfg      Config
	settings *meshSettings
	build    Build
	log      *slog.Logger
	level    *slog.LevelVar // of log
	now      func() time.Time
	entropy  io.Reader
	bootTime time.Time
	started  time.Time // when this box entered the mesh that it is in; the control loop's own

	registry   *prometheus.Registry
	store      *store.Store
	catalog    *catalog.Catalog
	mesh       *mesh.Mesh
	fetch      *fetch.Store
	installer  *install.Installer
	hardware   *hardware.Hardware
	supervisor *process.Supervisor
	keys       *keys.Keys
	limits     *limits.Limiter
	book       *limits.CatalogBook
	meshTime   *meshClock
	policy     atomic.Pointer[limits.Policy]
	proxies    atomic.Pointer[[]netip.Prefix] // whose forwarded headers count
	router     *router.Router
	ui         *ui.UI

	public net.Listener
	admin  net.Listener

	looking sync.Mutex // held while the next view is made
	dead    deadSince  // guarded by looking

	view      atomic.Pointer[view]
	settled   atomic.Bool // the control loop may place and start
	stopping  atomic.Bool
	restart   chan struct{} // closed: end, leave engines running, and start again
	again     sync.Once     // closes restart
	kick      chan struct{} // capacity 1: something the control loop looks at changed
	fetches   fetches
	wants     wants
	usage     usage
	declared  declaredModels
	handovers handovers
	hosted    hosted
	offered   *offered
	engines   engineList

	undo []func() error // what New opened, to be closed last first
}

// Up runs a daemon until ctx ends. It is `llmgw up`.
func Up(ctx context.Context, src Sources, build Build, stdout, stderr io.Writer) error {
	cfg, settings, warnings, err := LoadConfig(src)
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		return fmt.Errorf("log level: %w", err)
	}
	log := NewLogger(stderr, cfg.LogFormat, level)
	for _, w := range warnings {
		log.Warn(w)
	}
	n, err := New(cfg, settings, build, log, level)
	if err != nil {
		return err
	}
	if err := n.greet(stdout); err != nil {
		log.Error("first API key is not shown", "error", err)
	}
	if err := n.Run(ctx); !errors.Is(err, errRestart) {
		return err
	}
	// The same process becomes the new daemon: whoever watches its pid sees no end.
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	return fmt.Errorf("restart: %w", syscall.Exec(self, os.Args, os.Environ()))
}

// New opens every part. What was opened is closed again when a later part
// fails. settings are those of LoadConfig; the mesh's own change level, which is
// that of log, as they change.
func New(cfg Config, settings []ui.Setting, build Build, log *slog.Logger, level *slog.LevelVar) (_ *Node, err error) {
	n := &Node{
		cfg: cfg, settings: newMeshSettings(settings), build: build, log: log, level: level, now: wallClock(), entropy: rand.Reader,
		registry: prometheus.NewRegistry(), kick: make(chan struct{}, 1),
		declared: declaredModels{file: cfg.ModelsFile, models: cfg.Models},
		dead:     deadSince{}, restart: make(chan struct{}), offered: newOffered(),
	}
	n.bootTime, n.started = n.now(), n.now()
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	for _, open := range []func() error{
		n.openStateDir, n.openPublicPort, n.openState, n.bootSettings, n.openMesh, n.openLimits, n.openEngines, n.openRouter, n.openUI,
	} {
		if err := open(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// Run serves until ctx ends or a part fails, then stops: unrouted at once,
// streams in flight get their time, engines end, membership stays.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Parts that must outlive the announcement of the end hang on their own context.
	meshCtx, endMesh := context.WithCancel(context.Background())
	var actors sync.WaitGroup
	start := func(ctx context.Context, name string, run func(context.Context) error) {
		actors.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	start(meshCtx, "mesh", n.mesh.Run)
	start(ctx, "engines", n.findEngines)
	start(ctx, "control loop", n.control)
	start(ctx, "declared models", n.declare)
	start(ctx, "limits", n.keepLimits)
	start(ctx, "hosts", n.pollHosts)
	start(ctx, "provider lists", n.askOffers)
	start(ctx, "books", n.books().run)
	start(ctx, "budgets ahead", n.prepareBudgets)
	servers := n.servers()
	for name, s := range servers {
		start(ctx, name, s.run)
	}
	n.log.Info("llmgw is up", "version", n.build.Version, "name", n.cfg.Name, "node", n.mesh.Self(),
		"api", n.public.Addr().String(), "state_dir", n.cfg.StateDir, "pid", os.Getpid())

	var err error
	select {
	case <-n.restart:
		err = errRestart
	case <-ctx.Done():
		if err = context.Cause(ctx); errors.Is(err, context.Canceled) {
			err = nil
		}
	}
	n.shutdown(servers, err != errRestart)
	cancel(nil)
	endMesh()
	actors.Wait()
	return errors.Join(err, n.close())
}

// Drain bounds how long an end may take.
const (
	drainStreams = 10 * time.Second
	drainEngines = 20 * time.Second
)

// errRestart ends a run that is to be followed by another.
var errRestart = errors.New("restart")

// shutdown takes the node out of routing, lets streams end, and stops engines
// unless the next run is to adopt them.
func (n *Node) shutdown(servers map[string]*server, stopEngines bool) {
	n.log.Info("stopping: no new requests, membership stays", "engines_end", stopEngines)
	if stopEngines {
		n.handOverAll()
	}
	n.stopping.Store(true)
	n.mesh.SetPresence(n.presence(n.view.Load().models))
	ctx, cancel := context.WithTimeout(context.Background(), drainStreams)
	defer cancel()
	var done sync.WaitGroup
	for _, s := range servers {
		done.Go(func() { s.stop(ctx) })
	}
	done.Wait()
	ctx, cancel = context.WithTimeout(context.Background(), drainEngines)
	defer cancel()
	if err := n.supervisor.Close(ctx, stopEngines); err != nil {
		n.log.Error("an engine did not end", "error", err)
	}
}

// close undoes what New opened, last first.
func (n *Node) close() error {
	var errs []error
	for i := len(n.undo) - 1; i >= 0; i-- {
		errs = append(errs, n.undo[i]())
	}
	n.undo = nil
	return errors.Join(errs...)
}

// onClose remembers how to undo something that was opened.
func (n *Node) onClose(fn func() error) { n.undo = append(n.undo, fn) }

// wake asks the control loop to look again. It never blocks.
func (n *Node) wake() {
	select {
	case n.kick <- struct{}{}:
	default:
	}
}
