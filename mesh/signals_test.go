package mesh

import (
	"fmt"
	"sync"
	"testing"
)

// heard keeps the signals that a box was handed.
type heard struct {
	mu   sync.Mutex
	from map[string][]string
}

func (b *box) listen() *heard {
	h := &heard{from: map[string][]string{}}
	b.mesh.OnSignal(SignalWarm, func(from string, msg []byte) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.from[from] = append(h.from[from], string(msg))
	})
	return h
}

func (h *heard) has(from, msg string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.from[from] {
		if m == msg {
			return true
		}
	}
	return false
}

// TestSignalsReachMembersAlone: each member but the sender hears it with the name
// of its sender; a box of another mesh on the same link does not, also not after
// one moved from there.
func TestSignalsReachMembersAlone(t *testing.T) {
	t.Parallel()
	a, b, other := newBox(t, "a"), newBox(t, "b"), newBox(t, "other")
	atA, atB, atOther := a.listen(), b.listen(), other.listen()
	b.join(a)
	allLive(t, a, b)
	n := 0
	both := func() bool {
		n++
		for _, x := range []*box{a, b} {
			if err := x.mesh.Signal(SignalWarm, fmt.Appendf(nil, "%s-%d", x.cfg.Name, n)); err != nil {
				t.Fatal(err)
			}
		}
		return atA.has(b.id(), fmt.Sprintf("b-%d", n-1)) && atB.has(a.id(), fmt.Sprintf("a-%d", n-1))
	}
	eventually(t, "both hear each other", both)
	if atA.has(a.id(), "a-1") {
		t.Error("a heard itself")
	}
	if len(atOther.from) != 0 {
		t.Errorf("a stranger heard %v", atOther.from)
	}
	other.join(a)
	allLive(t, a, b, other)
	eventually(t, "who joined hears both", func() bool {
		both()
		return atOther.has(a.id(), fmt.Sprintf("a-%d", n-1)) && atOther.has(b.id(), fmt.Sprintf("b-%d", n-1))
	})
}

func TestSignalsThatCannotBe(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	for name, err := range map[string]error{
		"kind 0":       a.mesh.Signal(0, nil),
		"unknown kind": a.mesh.Signal(signalKinds, nil),
		"too large":    a.mesh.Signal(SignalWarm, make([]byte, MaxSignal+1)),
	} {
		if err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if err := a.mesh.Signal(SignalWarm, make([]byte, MaxSignal)); err != nil {
		t.Errorf("the largest: %v", err)
	}
}

// TestHostileSignals: what members of a later version or without sense publish
// ends nothing.
func TestHostileSignals(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	atA := a.listen()
	b.join(a)
	allLive(t, a, b)
	eventually(t, "a hears b among nonsense", func() bool {
		joined, _, _ := b.mesh.signals.topic.now()
		for _, raw := range [][]byte{{}, {0}, {250, 1, 2}, make([]byte, maxGossipWire-200)} {
			_ = joined.Publish(b.mesh.life, raw) // its own validator may refuse it
		}
		if err := b.mesh.Signal(SignalWarm, []byte("sense")); err != nil {
			t.Fatal(err)
		}
		return atA.has(b.id(), "sense")
	})
}
