package mesh

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"llmgw/crdt"
)

const (
	// gossipBatch is the least time between two sendings: a lone write goes out at once,
	// a stream of them in batches.
	gossipBatch = 50 * time.Millisecond
	// mergeMost bounds the messages that are merged, and synced to disk, together.
	mergeMost = 64
	// maxGossip bounds one message; pubsub adds a signature and an envelope.
	maxGossip = 60 << 10
	// maxGossipWire is what the validator takes: the cap of the design.
	maxGossipWire = 64 << 10
	// gossipQueue replaces pubsub's 32, whose overflow is dropped silently.
	gossipQueue = 256
	// subscriptionQueue is what may wait for this box to merge.
	subscriptionQueue = 1024
)

// rosterBlacklist keeps pubsub from talking to anybody but members. A peer filter
// is not enough: with flood publishing a stranger that subscribes would get
// each message that this box publishes.
type rosterBlacklist struct{ m *Mesh }

var _ pubsub.Blacklist = rosterBlacklist{}

func (b rosterBlacklist) Add(peer.ID) bool { return false }

func (b rosterBlacklist) Contains(p peer.ID) bool {
	return p != b.m.self && (!b.m.view.Load().roster.active(p) || b.m.warden.muted(p))
}

// memberHost is the host as pubsub sees it: its streams are for members alone.
type memberHost struct {
	host.Host
	m *Mesh
}

func (h memberHost) SetStreamHandler(id protocol.ID, handler network.StreamHandler) {
	h.Host.SetStreamHandler(id, h.guard(id, handler))
}

func (h memberHost) SetStreamHandlerMatch(id protocol.ID, match func(protocol.ID) bool, handler network.StreamHandler) {
	h.Host.SetStreamHandlerMatch(id, match, h.guard(id, handler))
}

func (h memberHost) guard(id protocol.ID, handler network.StreamHandler) network.StreamHandler {
	return func(s network.Stream) {
		if !h.m.view.Load().roster.active(s.Conn().RemotePeer()) {
			h.m.refuse(&stream{Stream: s, m: h.m}, string(id), ErrNotMember)
			return
		}
		handler(s)
	}
}

// gossip carries local writes to the other boxes as a hint.
type gossip struct {
	m     *Mesh
	topic *topic
	wake  chan struct{}

	mu      sync.Mutex
	pending map[crdt.Key]crdt.Row // local writes not sent yet
}

func (m *Mesh) openGossip() error {
	params := pubsub.DefaultGossipSubParams()
	params.D, params.Dlo, params.Dhi, params.Dlazy, params.Dout, params.Dscore = 8, 6, 16, 8, 2, 4
	params.HeartbeatInterval = time.Second
	ps, err := pubsub.NewGossipSub(m.life, memberHost{Host: m.host, m: m},
		pubsub.WithGossipSubParams(params),
		pubsub.WithFloodPublish(true),
		pubsub.WithBlacklist(rosterBlacklist{m}),
		pubsub.WithPeerOutboundQueueSize(gossipQueue),
		pubsub.WithValidateQueueSize(gossipQueue),
		pubsub.WithMessageSignaturePolicy(pubsub.StrictSign),
		pubsub.WithRawTracer(dropTracer{m: m}),
		pubsub.WithLogger(slog.New(quietHandler{m.log.Handler()})),
		pubsub.WithRPCLogger(slog.New(quietHandler{m.log.Handler()})),
	)
	if err != nil {
		return fmt.Errorf("open gossip: %w", err)
	}
	m.pubsub = ps
	m.gossip = &gossip{m: m, pending: map[crdt.Key]crdt.Row{}, wake: make(chan struct{}, 1)}
	m.gossip.topic = newTopic(m, "/state/1", subscriptionQueue, m.gossip.validate)
	m.signals = newSignals(m)
	m.followTopics(m.view.Load())
	m.store.OnLocalWrite(m.gossip.wrote)
	return nil
}

// follow moves to the topic of the view's mesh, unless it is there already.
func (g *gossip) follow(v *view) {
	if !g.topic.follow(v) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.pending) // of the old mesh
}

func (g *gossip) close() {
	g.m.store.OnLocalWrite(func([]crdt.Item) {})
	g.topic.close()
}

// wrote takes the cells of a local write. It is called by the store.
func (g *gossip) wrote(items []crdt.Item) {
	g.mu.Lock()
	for _, item := range items {
		if had, ok := g.pending[item.Key]; ok {
			item.Row = crdt.Merge(had, item.Row)
		}
		g.pending[item.Key] = item.Row
	}
	g.mu.Unlock()
	wake(g.wake)
}

// run publishes batches and merges what others publish.
func (g *gossip) run(ctx context.Context) {
	var receive sync.WaitGroup
	receive.Go(func() { g.receive(ctx) })
	defer receive.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
		}
		g.publish(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(gossipBatch):
		}
	}
}

func (g *gossip) publish(ctx context.Context) {
	g.mu.Lock()
	items := make([]crdt.Item, 0, len(g.pending))
	for k, row := range g.pending {
		items = append(items, crdt.Item{Key: k, Row: row})
	}
	clear(g.pending)
	g.mu.Unlock()
	topic, _, _ := g.topic.now()
	// What a box writes that was away for too long goes out with the pull after its
	// re-seed, as far as it still counts.
	if topic == nil || g.m.absence.overdue() {
		return
	}
	for _, part := range crdt.Pack(items, maxGossip) {
		raw, err := crdt.EncodeItems(part)
		if err != nil {
			g.m.log.Error("gossip not encoded", "err", err)
			continue
		}
		if len(raw) > maxGossip {
			continue // one cell larger than a message: the pull carries it
		}
		if err := topic.Publish(ctx, raw); err != nil && ctx.Err() == nil {
			g.m.log.Debug("gossip not published", "err", err)
		}
	}
}

// validate is cheap and runs inline. The author is who signed the message, so a
// cell of another writer is a lie; an author whose writer ID is not known yet is
// no liar, and a pull gets the rows.
func (g *gossip) validate(_ context.Context, _ peer.ID, msg *pubsub.Message) pubsub.ValidationResult {
	author := msg.GetFrom()
	if author == g.m.self {
		return pubsub.ValidationAccept
	}
	if !g.m.view.Load().roster.active(author) {
		return pubsub.ValidationReject
	}
	if len(msg.GetData()) > maxGossipWire {
		g.m.warden.offence(author, offenceFrame)
		return pubsub.ValidationReject
	}
	if !g.m.warden.gossip(author, len(msg.GetData())) {
		g.m.puller.request(author) // what it wrote in earnest is not lost
		return pubsub.ValidationIgnore
	}
	items, err := crdt.DecodeItems(msg.GetData())
	if err != nil {
		g.m.log.Debug("gossip not understood", "peer", author.String(), "err", err)
		g.m.warden.offence(author, offenceFrame)
		return pubsub.ValidationReject
	}
	if result := g.m.judgeWriter(author, func(by crdt.ReplicaID) bool { return writtenBy(items, by) }); result != pubsub.ValidationAccept {
		return result
	}
	if g.m.absence.overdue() || g.m.absence.behind(author) {
		return pubsub.ValidationIgnore // the pull after the re-seed gets it
	}
	msg.ValidatorData = items
	return pubsub.ValidationAccept
}

// judgeWriter says whether what author published is its own, by the store that its hello told.
func (m *Mesh) judgeWriter(author peer.ID, wrote func(crdt.ReplicaID) bool) pubsub.ValidationResult {
	writer, known := m.authors.store(author)
	if !known {
		m.puller.requestAny()
		return pubsub.ValidationIgnore
	}
	if wrote(writer) {
		return pubsub.ValidationAccept
	}
	if m.authors.doubt(author) {
		m.warden.offence(author, offenceWriter)
		return pubsub.ValidationReject
	}
	m.puller.request(author) // its hello tells whether its store has a new identity
	return pubsub.ValidationIgnore
}

func writtenBy(items []crdt.Item, writer crdt.ReplicaID) bool {
	for _, item := range items {
		for _, cell := range item.Row.Cells {
			if cell.By != writer {
				return false
			}
		}
	}
	return true
}

// receive merges messages of the current topic until ctx ends.
func (g *gossip) receive(ctx context.Context) {
	for ctx.Err() == nil {
		_, sub, generation := g.topic.now()
		if sub != nil {
			g.drain(ctx, sub, generation)
		}
		select {
		case <-ctx.Done():
		case <-g.topic.moved:
		}
	}
}

// drain reads the topic until it is left. A merge waits for the disk; what comes
// meanwhile is merged together.
func (g *gossip) drain(ctx context.Context, sub *pubsub.Subscription, generation uint64) {
	messages := make(chan *pubsub.Message, mergeMost)
	go func() {
		defer close(messages)
		for {
			msg, err := sub.Next(ctx)
			if err != nil {
				return // cancelled: the topic was left, or ctx ended
			}
			if msg.ValidatorData != nil { // else our own
				messages <- msg
			}
		}
	}()
	for msg := range messages {
		g.take(generation, append([]*pubsub.Message{msg}, waiting(messages)...))
	}
}

// waiting takes what is there without waiting for more.
func waiting(messages <-chan *pubsub.Message) []*pubsub.Message {
	var out []*pubsub.Message
	for range len(messages) {
		if msg, ok := <-messages; ok {
			out = append(out, msg)
		}
	}
	return out
}

func (g *gossip) take(generation uint64, batch []*pubsub.Message) {
	var items []crdt.Item
	for _, msg := range batch {
		if these, ok := msg.ValidatorData.([]crdt.Item); ok {
			items = append(items, these...)
		}
	}
	refused, err := g.m.merge(generation, items)
	if err != nil {
		g.m.log.Debug("gossip not merged", "messages", len(batch), "err", err)
	}
	if refused == 0 {
		return
	}
	g.m.counts.rejected.Add(float64(refused))
	for _, msg := range batch {
		// Usually a record whose issuer is not known here yet.
		g.m.puller.request(msg.GetFrom())
	}
}

// dropTracer hears of what pubsub loses and has it pulled.
type dropTracer struct{ m *Mesh }

var _ pubsub.RawTracer = dropTracer{}

func (t dropTracer) lost() {
	t.m.counts.dropped.Inc()
	t.m.events.note(t.m.now(), "", Alarm{
		Kind: AlarmGossipLoss, Text: "messages between boxes were dropped; their content was pulled instead",
		Fix: "nothing, when it stays rare; else look for a box or link that cannot keep up",
	})
	t.m.puller.requestAny()
}

// DropRPC: an outbound queue was full.
func (t dropTracer) DropRPC(*pubsub.RPC, peer.ID) { t.lost() }

// UndeliverableMessage: this box merged too slowly.
func (t dropTracer) UndeliverableMessage(*pubsub.Message) { t.lost() }

// RejectMessage: the validation queue was full, or a message is forged.
func (t dropTracer) RejectMessage(msg *pubsub.Message, why string) {
	switch why {
	case pubsub.RejectValidationQueueFull, pubsub.RejectValidationThrottled:
		t.lost()
	case pubsub.RejectMissingSignature, pubsub.RejectInvalidSignature, pubsub.RejectUnexpectedAuthInfo, pubsub.RejectSelfOrigin:
		t.m.warden.offence(msg.ReceivedFrom, offenceSignature)
	}
}

func (dropTracer) OnNewOutboundStream(peer.ID, protocol.ID)             {}
func (dropTracer) OnClosedOutboundStream(peer.ID)                       {}
func (dropTracer) Join(string)                                          {}
func (dropTracer) Leave(string)                                         {}
func (dropTracer) Graft(peer.ID, string)                                {}
func (dropTracer) Prune(peer.ID, string)                                {}
func (dropTracer) ValidateMessage(*pubsub.Message)                      {}
func (dropTracer) DeliverMessage(*pubsub.Message)                       {}
func (dropTracer) DuplicateMessage(*pubsub.Message)                     {}
func (dropTracer) ThrottlePeer(peer.ID)                                 {}
func (dropTracer) RecvRPC(*pubsub.RPC)                                  {}
func (dropTracer) SendRPC(*pubsub.RPC, peer.ID)                         {}
func (dropTracer) SendRPCCompleted(*pubsub.RPC, peer.ID, time.Duration) {}

// quietHandler lets only errors of a chatty library through: pubsub warns of each
// guest that it rightly ignores.
type quietHandler struct{ slog.Handler }

func (h quietHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && h.Handler.Enabled(ctx, level)
}

func (h quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(attrs)}
}

func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name)}
}
