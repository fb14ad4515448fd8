package mesh

import (
	"sync"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
)

// topic is one pubsub topic that follows the mesh: it is left and joined anew when
// the mesh is replaced.
type topic struct {
	m        *Mesh
	suffix   string // of its name, after the mesh's tag
	queue    int    // messages that may wait to be read
	validate pubsub.ValidatorEx

	mu         sync.Mutex
	generation uint64
	joined     *pubsub.Topic
	sub        *pubsub.Subscription
	moved      chan struct{} // the subscription was replaced
}

func newTopic(m *Mesh, suffix string, queue int, validate pubsub.ValidatorEx) *topic {
	return &topic{m: m, suffix: suffix, queue: queue, validate: validate, moved: make(chan struct{}, 1)}
}

// follow moves to the topic of the view's mesh; false when it is there already.
func (t *topic) follow(v *view) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.joined != nil && t.generation == v.generation {
		return false
	}
	t.leave()
	name := "/llmgw/" + v.mesh.tag() + t.suffix
	err := t.m.pubsub.RegisterTopicValidator(name, t.validate, pubsub.WithValidatorInline(true))
	if err == nil {
		t.joined, err = t.m.pubsub.Join(name)
	}
	if err == nil {
		t.sub, err = t.joined.Subscribe(pubsub.WithBufferSize(t.queue))
	}
	if err != nil {
		// The pull still makes all boxes equal, only later.
		t.m.log.Error("gossip topic not joined", "topic", name, "err", err)
		t.leave()
		return true
	}
	t.generation = v.generation
	wake(t.moved)
	return true
}

// leave is called with t locked.
func (t *topic) leave() {
	if t.sub != nil {
		t.sub.Cancel()
	}
	if t.joined != nil {
		if err := t.m.pubsub.UnregisterTopicValidator(t.joined.String()); err != nil {
			t.m.log.Debug("gossip validator not removed", "err", err)
		}
		if err := t.joined.Close(); err != nil {
			t.m.log.Debug("gossip topic not closed", "err", err)
		}
	}
	t.joined, t.sub = nil, nil
}

func (t *topic) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave()
}

// now is what is joined at this moment; nil when nothing is.
func (t *topic) now() (joined *pubsub.Topic, sub *pubsub.Subscription, generation uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.joined, t.sub, t.generation
}
