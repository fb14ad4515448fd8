package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/mesh/placement"
)

const (
	// tick lets time itself be a change: hold-downs end, sensors move.
	tick = time.Second
	// settleTime is how long a node that has peers waits for their state before
	// it acts on its own, which may be old.
	settleTime = 2 * time.Second
	// sessionSweep is how often sessions that have expired are dropped.
	sessionSweep = time.Hour
)

// control is the loop that decides and follows. A fault in one round is logged
// and the next round tries again.
func (n *Node) control(ctx context.Context) error {
	documents := n.catalog.Watch(catalog.NamespaceModels, catalog.NamespaceAssignments, catalog.NamespaceNodes, catalog.NamespaceSettings,
		catalog.NamespaceRoutes, catalog.NamespaceProviders)
	defer documents.Close()
	members := n.mesh.Changes()
	defer members.Close()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	c := &controller{node: n, mesh: n.mesh.MeshID(), swept: n.now()}
	for {
		if err := c.round(); err != nil {
			n.log.Error("a round of the control loop failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-documents.C:
		case <-members.C:
		case <-n.kick:
		case <-ticker.C:
		}
	}
}

// controller is the loop's own memory; nobody else reads it.
type controller struct {
	node  *Node
	mesh  string // ID of the mesh in the last round
	swept time.Time
}

func (c *controller) round() error {
	n := c.node
	if err := c.followMesh(); err != nil {
		return err
	}
	if err := n.followSettings(); err != nil {
		return err
	}
	v, err := n.look()
	if err != nil {
		return err
	}
	n.mesh.SetPresence(v.own)
	n.endWants(v)
	n.forgetSilent(v)
	if !c.settle(v) || n.stopping.Load() {
		return nil
	}
	if err := c.steward(v); err != nil {
		return err
	}
	c.reconcile(v)
	return c.sweep()
}

// followMesh notices that this box is in another mesh than before.
func (c *controller) followMesh() error {
	id := c.node.mesh.MeshID()
	if id == c.mesh {
		return nil
	}
	c.mesh, c.node.started = id, c.node.now()
	c.node.settled.Store(false)
	return c.node.ensureFirstKey()
}

// settle holds decisions back after boot until peers' state had time to come.
func (c *controller) settle(v *view) bool {
	n := c.node
	if !v.own.Complete {
		return false
	}
	if !n.settled.Load() && (len(v.nodes) <= 1 || n.mesh.Pulled() || n.now().Sub(n.started) >= settleTime) {
		n.settled.Store(true)
	}
	return n.settled.Load()
}

// steward writes the assignments of the models that this node looks after. One that
// cannot be written keeps none of the others.
func (c *controller) steward(v *view) error {
	self := c.node.mesh.Self()
	var errs []error
	for _, d := range v.decisions {
		if d.Write == nil || placement.Steward(d.Model, v.input.Nodes) != self {
			continue
		}
		write := *d.Write
		write.Steward = self
		if err := c.node.catalog.PutAssignment(write); err != nil {
			errs = append(errs, err)
			continue
		}
		c.node.log.Info("assigned", "model", d.Model, "slot", d.Slot, "owner", v.name(write.Owner), "epoch", write.Epoch, "reason", d.Reason)
	}
	return errors.Join(errs...)
}

// reconcile makes the supervisor follow the assignments that the view had.
// Those just written come with the next round: the write wakes the loop.
func (c *controller) reconcile(v *view) {
	n := c.node
	for _, a := range placement.Reconcile(n.mesh.Self(), v.input) {
		if !a.Run {
			if !n.mayRelease(v, a) {
				continue
			}
			n.supervisor.Release(a.Model, a.Slot, a.Reason)
			continue
		}
		shard, err := n.shard(v, a)
		if err == nil {
			err = n.supervisor.Ensure(shard)
		}
		if err != nil {
			n.log.Warn("cannot start a replica", "model", a.Model, "slot", a.Slot, "error", err)
		}
	}
}

func (c *controller) sweep() error {
	now := c.node.now()
	if now.Sub(c.swept) < sessionSweep {
		return nil
	}
	c.swept = now
	return c.node.catalog.DropExpiredSessions(now)
}

// shard is everything that the engine of an assignment needs.
func (n *Node) shard(v *view, a placement.Action) (catalog.Shard, error) {
	for _, m := range v.models {
		if m.ID != a.Model {
			continue
		}
		installed, _ := n.engines.get()
		profile, missing, ok := placement.ChooseProfile(m, installed)
		if !ok {
			return catalog.Shard{}, fmt.Errorf("none of its engines %v is installed here", missing)
		}
		weights, ok := n.fetch.Path(m.Source.Digest)
		if !ok {
			return catalog.Shard{}, fmt.Errorf("its file %s is not on this disk", m.Source.Digest)
		}
		devices, err := device(n.hardware.Inventory(context.Background()), a.Device)
		if err != nil {
			return catalog.Shard{}, err
		}
		host, _ := os.Hostname()
		return catalog.Shard{
			Model: m, Profile: profile, Slot: a.Slot, Epoch: a.Epoch, Weights: weights,
			Devices: devices, Hostname: host,
		}, nil
	}
	return catalog.Shard{}, fmt.Errorf("model %s: %w", a.Model, catalog.ErrNotFound)
}
