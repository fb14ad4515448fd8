package node

import (
	"context"
	"sync"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/mesh/placement"
)

// handOverTime bounds how long a replica waits with its end for its
// conversations to be computed elsewhere.
const handOverTime = 5 * time.Second

// handovers are the replicas of this node that are about to drain.
type handovers struct {
	mu  sync.Mutex
	out map[catalog.AssignmentID]bool // true: it may drain
}

// mayRelease says whether a replica may drain now. The first call has its
// conversations handed over to another ready replica, if there is one; the
// control loop is woken when that is done.
func (n *Node) mayRelease(v *view, a placement.Action) bool {
	id := catalog.AssignmentID{Model: a.Model, Slot: a.Slot}
	n.handovers.mu.Lock()
	defer n.handovers.mu.Unlock()
	if done, known := n.handovers.out[id]; known {
		if done {
			delete(n.handovers.out, id)
		}
		return done
	}
	own, ok := v.own.Replica(a.Model, a.Slot)
	if !ok || own.State != catalog.ReplicaReady {
		return true
	}
	if n.handovers.out == nil {
		n.handovers.out = map[catalog.AssignmentID]bool{}
	}
	n.handovers.out[id] = false
	go func() {
		n.handOver(id)
		n.handovers.mu.Lock()
		n.handovers.out[id] = true
		n.handovers.mu.Unlock()
		n.wake()
	}()
	return false
}

func (n *Node) handOver(id catalog.AssignmentID) {
	ctx, cancel := context.WithTimeout(context.Background(), handOverTime)
	defer cancel()
	if done, all := n.router.HandOver(ctx, id.Model, id.Slot); all > 0 {
		n.log.Info("conversations were handed over", "model", id.Model, "slot", id.Slot, "done", done, "of", all)
	}
}

// handOverAll is for a daemon that ends with its engines.
func (n *Node) handOverAll() {
	var done sync.WaitGroup
	for _, r := range n.view.Load().own.Replicas {
		if r.State == catalog.ReplicaReady {
			done.Go(func() { n.handOver(catalog.AssignmentID{Model: r.Model, Slot: r.Slot}) })
		}
	}
	done.Wait()
}
