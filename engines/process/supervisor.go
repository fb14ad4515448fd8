package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"llmgw/mesh/catalog"
)

// loopback is where engines listen.
const loopback = "127.0.0.1"

// Errors of Acquire and Ensure.
var (
	ErrNotHere  = errors.New("no ready replica here")
	ErrBusy     = errors.New("replica takes no more requests")
	ErrStopping = errors.New("replica is stopping")
	ErrClosed   = errors.New("supervisor is closed")
)

// Target is where a request for a model goes on this node.
type Target struct {
	URL      string // http://127.0.0.1:port
	Key      string // the engine's own key; a bearer token
	Model    string // model ID
	Slot     int
	Epoch    uint64
	Digest   string
	Engine   string
	Upstream string // the name that the engine serves under
}

// Supervisor runs the engines of one node. Its methods may be called from any
// goroutine.
type Supervisor struct {
	cfg     Config
	ports   *ports
	cgroups cgroups
	help    *helpCache
	client  *http.Client
	boot    string

	mu       sync.Mutex
	replicas map[replicaID]*replica
	closed   bool
}

type replicaID struct {
	model string
	slot  int
}

func idOf(s catalog.Shard) replicaID { return replicaID{s.Model.ID, s.Slot} }

// New opens a supervisor on cfg.Dir. It starts nothing; call Recover before
// the first Ensure.
func New(cfg Config) (*Supervisor, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	pool, err := newPorts(cfg.Ports, systemFree)
	if err != nil {
		return nil, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, fmt.Errorf("open supervisor: read boot ID: %w", err)
	}
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, fmt.Errorf("open supervisor: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open supervisor: %w", err)
	}
	s := &Supervisor{
		cfg: cfg, ports: pool, cgroups: openCgroups(cfg.CgroupRoot), help: newHelpCache(),
		client: newProbeClient(), boot: boot, replicas: make(map[replicaID]*replica),
	}
	if cfg.Metrics != nil {
		if err := cfg.Metrics.Register(collector{s}); err != nil {
			return nil, fmt.Errorf("open supervisor: %w", err)
		}
	}
	return s, nil
}

// Ensure makes shard run here. It is idempotent and returns at once; how it
// goes is told by Status. A higher epoch alone keeps the process; a changed
// profile, name or digest drains and replaces it. A shard with a lower epoch
// than the present one is old news and is ignored.
func (s *Supervisor) Ensure(shard catalog.Shard) error {
	if shard.Model.ID == "" || shard.Slot < 0 {
		return errors.New("ensure replica: shard has no model or slot")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if r, ok := s.replicas[idOf(shard)]; ok {
		r.ensure(shard)
		return nil
	}
	r := newReplica(s, shard)
	s.replicas[r.id] = r
	go r.run(r.launch)
	return nil
}

// Release drains and stops a replica, and forgets it. reason is for a person.
// It returns at once; unknown replicas are none of its business.
func (s *Supervisor) Release(model string, slot int, reason string) {
	s.mu.Lock()
	r := s.replicas[replicaID{model, slot}]
	s.mu.Unlock()
	if r != nil {
		r.release(reason)
	}
}

// Retry starts a quarantined or failed replica again, with its crashes
// forgotten. It is what an admin asks for.
func (s *Supervisor) Retry(model string, slot int) {
	s.mu.Lock()
	r := s.replicas[replicaID{model, slot}]
	s.mu.Unlock()
	if r != nil {
		r.askRetry()
	}
}

// Status tells how each replica is, by model and slot.
func (s *Supervisor) Status() []catalog.ReplicaStatus {
	out := []catalog.ReplicaStatus{}
	for _, r := range s.all() {
		out = append(out, r.status())
	}
	slices.SortFunc(out, func(a, b catalog.ReplicaStatus) int {
		if c := strings.Compare(a.Model, b.Model); c != 0 {
			return c
		}
		return a.Slot - b.Slot
	})
	return out
}

func (s *Supervisor) all() []*replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*replica, 0, len(s.replicas))
	for _, r := range s.replicas {
		out = append(out, r)
	}
	return out
}

// Acquire gives the ready replica of a model that has the fewest requests in
// flight, and counts one more. The func releases it; further calls do nothing.
// The error is ErrNotHere, ErrBusy or ErrStopping.
func (s *Supervisor) Acquire(model string) (Target, func(), error) {
	model = catalog.FoldName(model)
	var candidates []*replica
	for _, r := range s.all() {
		if r.id.model == model {
			candidates = append(candidates, r)
		}
	}
	slices.SortFunc(candidates, func(a, b *replica) int { return a.busy() - b.busy() })
	err := ErrNotHere
	for _, r := range candidates {
		target, refusal := r.acquire()
		if refusal == nil {
			return target, sync.OnceFunc(r.done), nil
		}
		if err == ErrNotHere || refusal == ErrBusy {
			err = refusal
		}
	}
	return Target{}, nil, err
}

// Target is Acquire for callers that do not care why there is none.
func (s *Supervisor) Target(model string) (Target, func(), bool) {
	t, release, err := s.Acquire(model)
	return t, release, err == nil
}

// Close ends the supervision. With stopEngines, engines are unrouted at once,
// drained until ctx ends, and stopped. Without, they keep running for a later
// Supervisor on the same directory to adopt.
func (s *Supervisor) Close(ctx context.Context, stopEngines bool) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	all := s.all()
	for _, r := range all {
		if stopEngines {
			r.shutdown(ctx.Done())
		} else {
			r.detach()
		}
	}
	var errs []error
	for _, r := range all {
		<-r.ended
		errs = append(errs, r.leftover())
	}
	s.client.CloseIdleConnections()
	if s.cfg.Metrics != nil {
		s.cfg.Metrics.Unregister(collector{s})
	}
	return errors.Join(errs...)
}

// forget drops a replica that has ended, unless somebody wants it again.
func (s *Supervisor) forget(r *replica) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.wanted() {
		return false
	}
	delete(s.replicas, r.id)
	return true
}
