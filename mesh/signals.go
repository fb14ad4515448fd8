package mesh

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
)

// Signal says what a signal is about. A value never changes its meaning; signals of
// a kind that a box does not know are dropped there.
type Signal byte

const (
	// SignalWarm carries what a head decided about where prompts go.
	SignalWarm Signal = 1
	// SignalRates carries what a head counted in rate windows.
	SignalRates Signal = 2
	// SignalSpend carries what a box spent: the mesh's own.
	SignalSpend Signal = 3
	// SignalCool carries that a provider's key is left alone for a while.
	SignalCool Signal = 4

	// signalKinds is one above the last kind.
	signalKinds = SignalCool + 1
)

const (
	// MaxSignal bounds one signal, in bytes.
	MaxSignal = maxGossip - 1
	// signalQueue is what may wait for whoever takes it; what is more is lost.
	signalQueue = 256
)

var errSignal = errors.New("no such signal, or one that is too large")

// signals carry what is worth nothing a minute later, apart from the state: nothing
// of it is kept, and what is lost is not sent again.
type signals struct {
	m     *Mesh
	topic *topic
	take  [signalKinds]atomic.Pointer[func(from string, msg []byte)]
}

func newSignals(m *Mesh) *signals {
	s := &signals{m: m}
	s.topic = newTopic(m, "/rates/1", signalQueue, s.validate)
	return s
}

// followTopics moves to the topics of the view's mesh.
func (m *Mesh) followTopics(v *view) {
	m.gossip.follow(v)
	m.signals.topic.follow(v)
	m.money.follow(v)
}

// Signal tells all other members something. It may be lost, be overtaken, or come
// twice; it does not wait for anybody.
func (m *Mesh) Signal(kind Signal, msg []byte) error {
	if kind == 0 || kind >= signalKinds || len(msg) > MaxSignal {
		return fmt.Errorf("signal of kind %d with %d bytes: %w", kind, len(msg), errSignal)
	}
	joined, _, _ := m.signals.topic.now()
	if joined == nil || m.Serving() != nil {
		return nil // to nobody
	}
	if err := joined.Publish(m.life, append([]byte{byte(kind)}, msg...)); err != nil {
		return fmt.Errorf("signal: %w", err)
	}
	return nil
}

// OnSignal has take called for each signal of a kind, one after the other; from is
// the peer ID of the member that sent it. What comes while take is slow may be lost.
func (m *Mesh) OnSignal(kind Signal, take func(from string, msg []byte)) {
	m.signals.take[kind].Store(&take)
}

// validate runs inline, before a message is passed on.
func (s *signals) validate(_ context.Context, _ peer.ID, msg *pubsub.Message) pubsub.ValidationResult {
	author := msg.GetFrom()
	switch {
	case author == s.m.self:
		return pubsub.ValidationAccept
	case !s.m.view.Load().roster.active(author):
		return pubsub.ValidationReject
	case len(msg.GetData()) == 0 || len(msg.GetData()) > maxGossipWire:
		s.m.warden.offence(author, offenceFrame)
		return pubsub.ValidationReject
	case !s.m.warden.signal(author, len(msg.GetData())):
		return pubsub.ValidationIgnore
	case Signal(msg.GetData()[0]) == SignalSpend:
		return s.m.money.validate(author, msg)
	}
	return pubsub.ValidationAccept
}

// run hands signals out until ctx ends.
func (s *signals) run(ctx context.Context) {
	for ctx.Err() == nil {
		if _, sub, generation := s.topic.now(); sub != nil {
			s.drain(ctx, sub, generation)
		}
		select {
		case <-ctx.Done():
		case <-s.topic.moved:
		}
	}
}

// drain reads the topic until it is left.
func (s *signals) drain(ctx context.Context, sub *pubsub.Subscription, generation uint64) {
	for {
		msg, err := sub.Next(ctx)
		if err != nil {
			return
		}
		data := msg.GetData()
		if msg.GetFrom() == s.m.self || Signal(data[0]) >= signalKinds {
			continue
		}
		if part, ok := msg.ValidatorData.(crdt.Money); ok {
			s.m.money.take(msg.GetFrom(), generation, part)
			continue
		}
		if take := s.take[data[0]].Load(); take != nil {
			(*take)(msg.GetFrom().String(), data[1:])
		}
	}
}
