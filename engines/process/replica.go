package process

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"llmgw/mesh/catalog"
)

// admissionPerSlot bounds the requests that wait inside one engine for each
// that it computes. Engines queue by themselves; the bound only keeps a flood
// of connections away from them.
const admissionPerSlot = 64

// replica is one replica of a model on this node. Fields below mu are shared;
// the rest belongs to the goroutine of run.
type replica struct {
	sup   *Supervisor
	id    replicaID
	dir   string
	log   *slog.Logger
	kick  chan struct{} // a wish changed, or the last request ended
	ended chan struct{} // run has returned

	engine  *engine // the process of this moment; nil: none
	history History

	mu     sync.Mutex
	wish   wish
	view   catalog.ReplicaStatus
	target Target
	stuck  error // a process that did not die
}

// wish is what others want of a replica.
type wish struct {
	shard  *catalog.Shard  // nil: shall end
	reason string          // why it shall end
	leave  bool            // keep the process, end the goroutine
	retry  bool            // forget the crashes
	hurry  <-chan struct{} // closed: drain no longer
}

func newReplica(s *Supervisor, shard catalog.Shard) *replica {
	id := idOf(shard)
	r := &replica{
		sup: s, id: id, dir: filepath.Join(s.cfg.Dir, dirName(id)),
		log:  s.cfg.Log.With(slog.String("model", id.model), slog.Int("slot", id.slot)),
		kick: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	r.wish.shard = &shard
	r.view = catalog.ReplicaStatus{
		State: catalog.ReplicaStarting, Since: s.cfg.Now().Unix(),
	}
	r.describe(shard)
	return r
}

// dirName is a short name for a replica's directory: model IDs hold slashes and
// may be long, and the path of a socket in it must stay short.
func dirName(id replicaID) string {
	sum := sha256.Sum256([]byte(id.model))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
	plain := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_' {
			return c
		}
		return '_'
	}, id.model)
	if len(plain) > 24 {
		plain = plain[:24]
	}
	return fmt.Sprintf("%s-%s-%s", strings.TrimLeft(plain, "."), hash, strconv.Itoa(id.slot))
}

// describe copies what a shard says of itself into the view.
func (r *replica) describe(shard catalog.Shard) {
	r.view.Model, r.view.Slot, r.view.Epoch = shard.Model.ID, shard.Slot, shard.Epoch
	r.view.Digest, r.view.Engine, r.view.Profile = shard.Model.Source.Digest, shard.Profile.Engine, shard.Profile.ID
	r.view.Device = deviceNames(shard.Devices)
}

func deviceNames(devices []catalog.Device) string {
	ids := make([]string, 0, len(devices))
	for _, d := range devices {
		ids = append(ids, d.ID)
	}
	return strings.Join(ids, ",")
}

// poke wakes the goroutine; one waiting wake-up is enough.
func (r *replica) poke() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

func (r *replica) ensure(shard catalog.Shard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.wish.shard
	if now != nil && (shard.Epoch < now.Epoch || shard.Epoch == now.Epoch && sameShard(shard, *now)) {
		return
	}
	r.wish.shard, r.wish.reason = &shard, ""
	r.poke()
}

func (r *replica) release(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wish.shard == nil {
		return
	}
	r.wish.shard, r.wish.reason = nil, reason
	r.poke()
}

func (r *replica) shutdown(hurry <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wish = wish{reason: "daemon stops", hurry: hurry}
	if r.view.State == catalog.ReplicaReady {
		r.view.State = catalog.ReplicaStopping // unrouted before the goroutine wakes
	}
	r.poke()
}

func (r *replica) detach() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wish.leave = true
	r.poke()
}

func (r *replica) askRetry() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wish.retry = true
	r.poke()
}

func (r *replica) wishes() wish {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wish
}

func (r *replica) wanted() bool {
	w := r.wishes()
	return w.shard != nil || w.leave
}

func (r *replica) status() catalog.ReplicaStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.view
}

// busy is the number of requests in flight.
func (r *replica) busy() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.view.InFlight
}

func (r *replica) leftover() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stuck
}

// acquire counts a request in. The state is checked under the same lock under
// which it changes, so that no request slips into a replica that drains.
func (r *replica) acquire() (Target, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.view.State == catalog.ReplicaStopping:
		return Target{}, ErrStopping
	case r.view.State != catalog.ReplicaReady:
		return Target{}, ErrNotHere
	case r.view.InFlight >= max(r.view.Slots, 1)*admissionPerSlot:
		return Target{}, ErrBusy
	}
	r.view.InFlight++
	return r.target, nil
}

// done counts a request out.
func (r *replica) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.view.InFlight--
	if r.view.InFlight == 0 && r.view.State == catalog.ReplicaStopping {
		r.poke()
	}
}

// enter changes the state. It reports only what changed.
func (r *replica) enter(state catalog.ReplicaState, reason string) {
	r.mu.Lock()
	changed := r.view.State != state
	if !changed && r.view.Reason == reason {
		r.mu.Unlock()
		return
	}
	if changed {
		r.view.Since = r.sup.cfg.Now().Unix()
	}
	r.view.State, r.view.Reason = state, reason
	r.mu.Unlock()
	if changed {
		r.log.Info("replica changed state", slog.String("state", string(state)), slog.String("reason", reason))
	}
	r.sup.cfg.OnChange()
}

// update changes other parts of the view.
func (r *replica) update(f func(v *catalog.ReplicaStatus)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.view)
}
