package node

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// wants are the models that requests of this node wait for. They are told by
// presence, and placement treats them like Scale.Min, until the model is unloaded.
type wants struct {
	mu   sync.Mutex
	held map[wanted]*want
	once []oneWant
}

// wanted is a model as it stood after one of its unloads.
type wanted struct {
	model string // ID
	after uint64 // Model.Unloaded
}

// outlived says whether the model was unloaded since.
func (w wanted) outlived(models []catalog.Model) bool {
	m, ok := catalog.Resolve(models, w.model)
	return ok && m.Unloaded > w.after
}

type want struct {
	holders, replicas int
	since             time.Time
}

// oneWant ends by itself, when the model is loaded or time is over.
type oneWant struct {
	wanted
	until   time.Time
	release func()
}

func (w *wants) hold(what wanted, replicas int, now time.Time) (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held == nil {
		w.held = map[wanted]*want{}
	}
	h, ok := w.held[what]
	if !ok {
		h = &want{since: now}
		w.held[what] = h
	}
	h.holders++
	h.replicas = max(h.replicas, replicas)
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if h.holders--; h.holders == 0 {
			delete(w.held, what)
		}
	})
}

// list is what presence tells. Wants that an unload has ended are not told: who has
// not heard of it yet would load for them.
func (w *wants) list(models []catalog.Model, now time.Time) []catalog.Want {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []catalog.Want
	for what, h := range w.held {
		if !what.outlived(models) {
			out = append(out, catalog.Want{Model: what.model, Replicas: h.replicas, Since: h.since.Unix(), Waited: catalog.WaitedStep(now.Sub(h.since)), After: what.after})
		}
	}
	slices.SortFunc(out, func(a, b catalog.Want) int {
		return cmp.Or(strings.Compare(a.Model, b.Model), cmp.Compare(a.After, b.After))
	})
	return out
}

// outlived are the models, by ID, that were unloaded while requests of this node
// waited for them, and wait still.
func (w *wants) outlived(models []catalog.Model) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]bool{}
	for what := range w.held {
		if what.outlived(models) {
			out[what.model] = true
		}
	}
	return out
}

func (w *wants) holdOnce(o oneWant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.once = append(w.once, o)
}

// end releases those that end by themselves and that over says are over.
func (w *wants) end(over func(oneWant) bool) (ended bool) {
	w.mu.Lock()
	var gone []oneWant
	w.once = slices.DeleteFunc(w.once, func(o oneWant) bool {
		if over(o) {
			gone = append(gone, o)
			return true
		}
		return false
	})
	w.mu.Unlock()
	for _, o := range gone {
		o.release()
	}
	return len(gone) > 0
}

// Want says that a request of this node waits for a replica of a model, beyond
// those that are ready, and that it does until release is called. A model that
// is unknown, stopped, or whose Scale.Max allows no more is an *ui.Error.
func (n *Node) Want(model string) (release func(), err error) {
	v := n.view.Load()
	m, ok := catalog.Resolve(v.models, model)
	if !ok {
		return nil, &ui.Error{Kind: ui.NotFound, Message: fmt.Sprintf("no model is named %q", model)}
	}
	if m.State == catalog.ModelStopped {
		return nil, &ui.Error{Kind: ui.Conflict, Code: "model_stopped", Message: m.Name + " is stopped", Hint: "llmgw start " + m.Name}
	}
	ready := len(v.route(m).Replicas)
	if limit := max(m.Scale.Max, m.Scale.Min); ready >= limit {
		return nil, &ui.Error{Kind: ui.Conflict, Code: "not_on_demand",
			Message: fmt.Sprintf("requests cannot ask for more of %s: %d replicas are ready and scale.max is %d", m.Name, ready, m.Scale.Max),
			Hint:    fmt.Sprintf("llmgw scale %s --max %d", m.Name, ready+1)}
	}
	drop := n.wants.hold(wanted{m.ID, m.Unloaded}, ready+1, n.now())
	n.wake()
	return func() { drop(); n.wake() }, nil
}

// onDemandWait is how long an admin's want for a model lasts.
const onDemandWait = 2 * time.Minute

// wantOnce is Want for an admin: it ends when the model is loaded, or unloaded.
func (n *Node) wantOnce(m catalog.Model) error {
	release, err := n.Want(m.ID)
	if err != nil {
		return err
	}
	n.wants.holdOnce(oneWant{wanted{m.ID, m.Unloaded}, n.now().Add(onDemandWait), release})
	return nil
}

// endWants looks whether wants that end by themselves are over.
func (n *Node) endWants(v *view) {
	n.wants.end(func(o oneWant) bool {
		m, ok := catalog.Resolve(v.models, o.model)
		return !ok || v.route(m).Loaded || m.Unloaded > o.after || n.now().After(o.until)
	})
}

// A replica that requests have waited for serves as long as it took to load, so that
// models that do not fit together spend no more time with being loaded than with
// answers, but within these bounds.
const (
	// servesLeast: those that waited are answered, and who was told to try again comes.
	servesLeast = 30 * time.Second
	// servesMost: requests for the other wait too, ten minutes (router.DefaultLoadWait),
	// and have to be loaded for in that time.
	servesMost = 2 * time.Minute
)

// usage remembers when replicas of this node became ready and were last used.
type usage struct {
	mu   sync.Mutex
	used map[catalog.AssignmentID]use
}

type use struct{ ready, last time.Time }

func (u *usage) touch(id catalog.AssignmentID, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.used == nil {
		u.used = map[catalog.AssignmentID]use{}
	}
	at, known := u.used[id]
	if !known {
		at.ready = now
	}
	at.last = now
	u.used[id] = at
}

// tell writes into the status of replicas when they were used, whether they are
// idle and whether they have served for too short a time to make room. One that was
// never used counts from when it was first seen ready: a daemon that comes back does
// not end what it adopted.
func (u *usage) tell(replicas []catalog.ReplicaStatus, models []catalog.Model, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	used := map[catalog.AssignmentID]use{}
	for i := range replicas {
		r := &replicas[i]
		if r.State != catalog.ReplicaReady {
			continue
		}
		id := catalog.AssignmentID{Model: r.Model, Slot: r.Slot}
		at, known := u.used[id]
		if !known {
			at.ready = now
		}
		if !known || r.InFlight > 0 {
			at.last = now
		}
		used[id] = at
		r.Used = at.last.Unix() / catalog.UsedStep * catalog.UsedStep
		r.Fresh = now.Sub(at.ready) < min(max(time.Duration(r.LoadMS)*time.Millisecond, servesLeast), servesMost)
		if m, ok := catalog.Resolve(models, r.Model); ok {
			r.Idle = m.Scale.Idle > 0 && r.InFlight == 0 && now.Sub(at.last) >= m.Scale.Idle
		}
	}
	u.used = used
}

// device finds what a slot was counted on; empty is the CPU, always the last.
func device(inventory catalog.Inventory, id string) ([]catalog.Device, error) {
	all := inventory.Devices
	i := slices.IndexFunc(all, func(d catalog.Device) bool { return d.ID == id })
	if id == "" {
		i = len(all) - 1
	}
	if i < 0 {
		return nil, fmt.Errorf("its device %s is not there", cmp.Or(id, "cpu"))
	}
	return all[i : i+1], nil
}
