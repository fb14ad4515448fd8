package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"llmgw/crdt/store"
	"llmgw/engines"
	"llmgw/engines/hardware"
	"llmgw/engines/install"
	"llmgw/engines/process"
	"llmgw/fetch"
	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/router"
	"llmgw/router/files"
	"llmgw/router/keys"
	"llmgw/ui"

	"github.com/prometheus/client_golang/prometheus/collectors"
)

// path is a place in the state directory.
func (n *Node) path(parts ...string) string {
	return filepath.Join(append([]string{n.cfg.StateDir}, parts...)...)
}

func (n *Node) openStateDir() error {
	lock, err := lockStateDir(n.cfg.StateDir)
	if err != nil {
		return err
	}
	n.onClose(lock.Close)
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return nil
}

// PortError says that an address cannot be listened on and which flag sets it.
type PortError struct {
	Address, Flag string
	Err           error
}

func (e *PortError) Error() string {
	if errors.Is(e.Err, syscall.EADDRINUSE) {
		return fmt.Sprintf("address %s is in use by another process; choose another with %s", e.Address, e.Flag)
	}
	return fmt.Sprintf("listen on %s: %v; %s sets it", e.Address, e.Err, e.Flag)
}

func (e *PortError) Unwrap() error { return e.Err }

func (n *Node) openPublicPort() error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", n.cfg.API)
	if err != nil {
		return &PortError{Address: n.cfg.API, Flag: "--api", Err: err}
	}
	n.public = l
	n.onClose(func() error { return ignoreClosed(l.Close()) })
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (n *Node) openState() error {
	s, err := store.Open(n.path("state"), store.Options{Now: n.now, Entropy: n.entropy, Log: n.log})
	if err != nil {
		return err
	}
	n.store, n.catalog = s, catalog.New(s)
	n.onClose(s.Close)
	return nil
}

// minSecretBytes is 128 random bits, however they are spelled.
const minSecretBytes = 16

// readSecret reads the mesh secret. Its bytes never reach a log or an error.
func readSecret(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read mesh secret: %w", err)
	}
	secret := strings.TrimSpace(string(raw))
	if len(secret) < minSecretBytes {
		return nil, fmt.Errorf("read mesh secret %s: it holds %d characters, at least %d are needed; make one with: llmgw secret new",
			path, len(secret), minSecretBytes)
	}
	return []byte(secret), nil
}

func (n *Node) openMesh() error {
	key, err := loadIdentity(n.cfg.StateDir, n.entropy)
	if err != nil {
		return err
	}
	secret, err := readSecret(n.cfg.MeshSecretFile)
	if err != nil {
		return err
	}
	m, err := mesh.Open(mesh.Config{
		Key: key, Name: n.cfg.Name, Version: n.build.Version, Listen: n.cfg.Mesh, Store: n.store, Secret: secret,
		Peers: n.cfg.Peers, MDNS: n.cfg.LAN, NoAutoJoin: !n.cfg.AutoJoin, DHT: n.cfg.DHT, DHTBootstrap: n.cfg.DHTBootstrap,
		Budget: n.hardBudget, ArchiveDir: n.path("archive"), Log: n.log, Metrics: n.registry, Now: n.now, Entropy: n.entropy,
	})
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "listen" {
		return &PortError{Address: n.cfg.Mesh, Flag: "--mesh", Err: err}
	}
	if err != nil {
		return err
	}
	n.mesh = m
	n.onClose(m.Close)
	return nil
}

func (n *Node) openEngines() (err error) {
	if n.fetch, err = fetch.Open(n.path("weights"), fetch.Options{Log: n.log, CacheDir: n.cfg.CacheDir}); err != nil {
		return err
	}
	n.onClose(n.fetch.Close)
	configured := map[string]string{}
	if n.cfg.LlamaServer != "" {
		configured[catalog.EngineLlamaCpp] = n.cfg.LlamaServer
	}
	n.installer, err = install.New(install.Options{
		Dir: n.path("engines"), Configured: configured, CacheDir: n.cfg.CacheDir, Log: n.log, Version: n.build.Version,
	})
	if err != nil {
		return err
	}
	n.onClose(n.installer.Close)
	n.hardware = hardware.New(hardware.Options{})
	n.supervisor, err = process.New(process.Config{
		Dir: n.path("run"), Ports: n.cfg.EnginePorts, Adapters: engines.Adapters(), Binary: n.installer.Binary,
		OnChange: n.wake, Log: n.log, Now: n.now, Entropy: n.entropy, Metrics: n.registry,
	})
	if err != nil {
		return err
	}
	if err := n.supervisor.Recover(context.Background()); err != nil {
		return fmt.Errorf("look for engines left running: %w", err)
	}
	return nil
}

func (n *Node) openRouter() error {
	n.keys = keys.New(n.catalog, keys.Options{Entropy: n.entropy, Now: n.now, Creator: n.mesh.Self()})
	if _, err := n.look(); err != nil {
		return err
	}
	made, err := files.Open(files.Config{Dir: n.path("files"), Owner: router.FileOwner(n.mesh.Self()), Entropy: n.entropy, Now: n.now, Log: n.log})
	if err != nil {
		return err
	}
	n.onClose(made.Close)
	n.router = router.New(router.Config{
		Catalog: routes{n}, Local: local{n}, Mesh: streams{n}, Auth: n.keys, Metrics: n.registry,
		Node: n.cfg.Name, Peer: n.mesh.Self(), Version: n.build.Version, Log: n.log, Now: n.now, Entropy: n.entropy, Ready: n.ready, Serving: n.mesh.Serving, Alive: routes{n}.Alive, PublicMetrics: n.cfg.MetricsPublic,
		Share: signals{n}, Demand: n.Want, Via: n.via,
		Quotas: n.limits, Trusted: n.trustedProxies, Files: made,
		LoadWait: n.cfg.LoadWait, QueueTime: n.cfg.QueueTime, MaxInFlight: n.cfg.MaxInFlight,
	})
	n.onClose(func() error { n.router.Close(); return nil })
	n.router.SetStripVolatile(n.cfg.StripVolatile)
	n.router.SetPrefixes(n.cfg.PrefixRouting, n.cfg.PrefixTTL)
	n.mesh.Handle(mesh.ProtocolInfer, func(s mesh.Stream) { n.router.ServeInfer(s) })
	n.mesh.Handle(router.ProtocolWarm, func(s mesh.Stream) { n.router.ServeWarm(s) })
	n.mesh.Handle(router.ProtocolStored, func(s mesh.Stream) { n.router.ServeStored(s) })
	n.mesh.Handle(router.ProtocolFiles, func(s mesh.Stream) { n.router.ServeFile(s) })
	n.mesh.OnSignal(mesh.SignalWarm, n.router.TakeShared)
	n.mesh.OnSignal(mesh.SignalCool, n.router.TakeCooled)
	return n.ensureFirstKey()
}

func (n *Node) openUI() error {
	n.ui = ui.New(ui.Config{
		Backend: admin{n}, Sessions: sessions{n}, Node: n.cfg.Name, Hosts: n.hosts, PublicURL: n.publicURL,
		Log: n.log, Now: n.now, Entropy: n.entropy,
		AllowHost: "set name in the config file to the name that you use",
	})
	l, err := listenSocket(n.cfg.StateDir, n.log)
	if err != nil {
		return err
	}
	n.admin = l
	n.onClose(func() error { return ignoreClosed(l.Close()) })
	return nil
}
