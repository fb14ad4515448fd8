package discovery

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/libp2p/go-libp2p"
	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/routing"
)

const tablePrefix = "/llmgw/dht/unit"

// seekerBox is a seeker with a table of its own, whose clock the test moves.
type seekerBox struct {
	*seeker
	table *dht.IpfsDHT

	mu      sync.Mutex
	now     time.Time
	missing []peer.ID
	members map[peer.ID]bool
	log     bytes.Buffer
}

func newHost(t *testing.T) host.Host {
	t.Helper()
	h, err := libp2p.New(libp2p.Identity(tableKey(t)), libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"), libp2p.DisableRelay(), libp2p.DisableMetrics())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func newSeekerBox(t *testing.T) *seekerBox {
	t.Helper()
	b := &seekerBox{now: time.Unix(1000, 0), members: map[peer.ID]bool{}}
	d := &DHT{
		Host: newHost(t), Prefix: func() string { return tablePrefix },
		Member:  func(p peer.ID) bool { b.mu.Lock(); defer b.mu.Unlock(); return b.members[p] },
		Missing: func() []peer.ID { return slices.Clone(b.missing) },
		Now:     func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.now },
		Log:     slog.New(slog.NewTextHandler(&b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	b.seeker = &seeker{d: d, found: map[peer.ID]Group{}, sought: map[peer.ID]time.Time{}}
	var err error
	if b.table, err = d.open(tablePrefix); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.close(b.table, tablePrefix) })
	return b
}

func (b *seekerBox) admit(others ...*seekerBox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range others {
		b.members[o.d.Host.ID()] = true
	}
}

func (b *seekerBox) later(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

func (b *seekerBox) id() peer.ID { return b.d.Host.ID() }

func (b *seekerBox) connect(t *testing.T, to *seekerBox) {
	t.Helper()
	if err := b.d.Host.Connect(t.Context(), peer.AddrInfo{ID: to.id(), Addrs: to.d.Host.Addrs()}); err != nil {
		t.Fatal(err)
	}
}

// keeps says whether a box is in the table.
func (b *seekerBox) keeps(p *seekerBox) bool { return b.table.RoutingTable().Find(p.id()) != "" }

func TestTableIsForMembersAlone(t *testing.T) {
	t.Parallel()
	box, member, stranger := newSeekerBox(t), newSeekerBox(t), newSeekerBox(t)
	box.admit(member)
	stranger.admit(box)
	member.admit(box)
	box.connect(t, stranger)
	soon(t, "the stranger keeps this box", func() bool { return stranger.keeps(box) })
	box.connect(t, member)
	soon(t, "the member is kept", func() bool { return box.keeps(member) })
	if box.keeps(stranger) {
		t.Error("a stranger is kept in the table")
	}
}

// TestStrangersThatAMemberNamesAreNotAsked: members may differ for a while in who is
// one.
func TestStrangersThatAMemberNamesAreNotAsked(t *testing.T) {
	t.Parallel()
	box, hub, stranger, lost := newSeekerBox(t), newSeekerBox(t), newSeekerBox(t), newSeekerBox(t)
	box.admit(hub, lost)
	hub.admit(box, stranger)
	stranger.connect(t, hub)
	box.connect(t, hub)
	soon(t, "the hub keeps the stranger", func() bool { return hub.keeps(stranger) })
	soon(t, "the hub is kept", func() bool { return box.keeps(hub) })
	box.missing = []peer.ID{lost.id()}
	if box.seek(t.Context(), box.table) {
		t.Errorf("found %v", box.found)
	}
	if box.d.Host.Network().Connectedness(stranger.id()) != network.NotConnected {
		t.Error("the stranger was dialled")
	}
	box.admit(stranger)
	box.later(seekEach)
	box.seek(t.Context(), box.table)
	if box.d.Host.Network().Connectedness(stranger.id()) != network.Connected {
		t.Error("as a member it was not asked")
	}
}

func TestTableServesAndStoresNothing(t *testing.T) {
	t.Parallel()
	box := newSeekerBox(t)
	if box.table.Mode() != dht.ModeServer {
		t.Errorf("mode %v", box.table.Mode())
	}
	protocols := func() (ours []protocol.ID) {
		for _, p := range box.d.Host.Mux().Protocols() {
			if strings.Contains(string(p), "kad") {
				ours = append(ours, p)
			}
		}
		return ours
	}
	if diff := cmp.Diff([]protocol.ID{tablePrefix + "/kad/1.0.0"}, protocols()); diff != "" {
		t.Error(diff)
	}
	if err := box.table.PutValue(t.Context(), "/v/a", []byte("b")); !errors.Is(err, routing.ErrNotSupported) {
		t.Errorf("a value is stored: %v", err)
	}
	if err := box.d.close(box.table, tablePrefix); err != nil {
		t.Error(err)
	}
	if left := protocols(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestSeekAsksNobodyWhileNobodyIsThere(t *testing.T) {
	t.Parallel()
	box, other := newSeekerBox(t), newSeekerBox(t)
	box.missing = []peer.ID{other.id()}
	if box.seek(t.Context(), box.table) || len(box.sought) != 0 {
		t.Errorf("asked: %v", box.sought)
	}
	// Who is missing no more is told no more, and that is a change.
	box.found[other.id()] = Group{Source: "dht", Peer: other.id().String(), Addrs: []string{"192.0.2.1:1"}}
	if box.seek(t.Context(), box.table) {
		t.Error("one that stays missing is a change")
	}
	box.missing = nil
	if !box.seek(t.Context(), box.table) || len(box.found) != 0 {
		t.Errorf("left: %v", box.found)
	}
	if box.seek(t.Context(), box.table) {
		t.Error("a second look is a change")
	}
}

func TestSeekSpacesItsQuestions(t *testing.T) {
	t.Parallel()
	box, hub, lost := newSeekerBox(t), newSeekerBox(t), newSeekerBox(t)
	box.admit(hub, lost)
	hub.admit(box)
	box.connect(t, hub)
	soon(t, "the hub is kept", func() bool { return box.keeps(hub) })
	box.missing = []peer.ID{lost.id()}
	asked := func() int { return strings.Count(box.log.String(), "DHT does not find a member") }
	for _, step := range []struct {
		later time.Duration
		want  int
	}{{0, 1}, {0, 1}, {seekEach - 1, 1}, {1, 2}, {seekEach, 3}} {
		box.later(step.later)
		if box.seek(t.Context(), box.table) {
			t.Error("nothing found is a change")
		}
		if got := asked(); got != step.want {
			t.Errorf("%v later it has asked %d times, want %d", step.later, got, step.want)
		}
	}
	// What was sought long ago is not remembered for ever.
	box.later(forget + time.Second)
	hub2 := newSeekerBox(t)
	box.missing = []peer.ID{hub2.id()}
	box.seek(t.Context(), box.table)
	if _, still := box.sought[lost.id()]; still || len(box.sought) != 1 {
		t.Errorf("remembered: %v", box.sought)
	}
}

func TestSeekTellsNewsOnce(t *testing.T) {
	t.Parallel()
	box, hub, moved := newSeekerBox(t), newSeekerBox(t), newSeekerBox(t)
	for _, b := range []*seekerBox{box, hub, moved} {
		b.admit(box, hub, moved)
	}
	moved.connect(t, hub)
	box.connect(t, hub)
	soon(t, "the hub is kept", func() bool { return box.keeps(hub) })
	soon(t, "the hub keeps the box that moved", func() bool { return hub.keeps(moved) })
	box.missing = []peer.ID{moved.id()}
	if !box.seek(t.Context(), box.table) {
		t.Fatalf("not found: %s", &box.log)
	}
	want := Group{Source: "dht", Peer: moved.id().String(), Addrs: hostPorts(moved.d.Host.Addrs()), Seen: time.Unix(1000, 0)}
	if diff := cmp.Diff(want, box.found[moved.id()]); diff != "" {
		t.Error(diff)
	}
	box.later(seekEach)
	if box.seek(t.Context(), box.table) {
		t.Error("the same addresses are news")
	}
	if got := box.found[moved.id()].Seen; !got.Equal(time.Unix(1000, 0).Add(seekEach)) {
		t.Errorf("seen at %v", got)
	}
}

// TestSetOfTheTable: the boxes to begin with come first, then who was found, in a fixed
// order.
func TestSetOfTheTable(t *testing.T) {
	t.Parallel()
	box := newSeekerBox(t)
	box.d.Bootstrap = Static{Addrs: []string{"192.0.2.9:1", "nonsense"}, Peers: map[string]string{"192.0.2.9:1": testPeer}}
	for _, p := range []peer.ID{"c", "a", "b"} {
		box.found[p] = Group{Source: "dht", Peer: string(p), Addrs: []string{"192.0.2.1:1"}}
	}
	out := make(chan []Group, 1)
	if !box.send(t.Context(), out) {
		t.Fatal("not sent")
	}
	var peers []string
	for _, g := range <-out {
		peers = append(peers, g.Peer)
	}
	if diff := cmp.Diff([]string{testPeer, "a", "b", "c"}, peers); diff != "" {
		t.Error(diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if box.send(ctx, make(chan []Group)) {
		t.Error("sent to nobody")
	}
}

// said passes on each line of a log.
type said chan string

func (s said) Write(line []byte) (int, error) { s <- string(line); return len(line), nil }

// TestATableThatCannotBeOpenedIsReported, and the boxes to begin with are told all the
// same.
func TestATableThatCannotBeOpenedIsReported(t *testing.T) {
	t.Parallel()
	lines := make(said, 4)
	d := &DHT{
		Host: newHost(t), Prefix: func() string { return "/ipfs" }, // which the library keeps for the public table
		Member: func(peer.ID) bool { return true }, Missing: func() []peer.ID { return nil },
		Bootstrap: Static{Addrs: []string{"192.0.2.9:1"}}, Now: time.Now, Log: slog.New(slog.NewTextHandler(lines, nil)),
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := make(chan []Group), make(chan struct{})
	go func() { defer close(ended); d.Run(ctx, out) }()
	if first := <-out; len(first) != 1 || first[0].Addrs[0] != "192.0.2.9:1" {
		t.Errorf("the first set is %v", first)
	}
	line := <-lines
	if !strings.Contains(line, "level=WARN") || !strings.Contains(line, "boxes are still found by the other ways") || !strings.Contains(line, "open DHT: ") {
		t.Errorf("the log says %s", line)
	}
	cancel()
	<-ended
	// One that nobody reads ends with its context too.
	d.Run(ctx, make(chan []Group))
}

// TestAnotherPrefixBeginsANewTable: this box is in another mesh now.
func TestAnotherPrefixBeginsANewTable(t *testing.T) {
	t.Parallel()
	box := newSeekerBox(t)
	box.d.close(box.table, tablePrefix)
	prefix := "/llmgw/dht/former"
	looked := make(chan struct{}, 1)
	box.d.Prefix = func() string { box.mu.Lock(); defer box.mu.Unlock(); return prefix }
	box.d.Missing = func() []peer.ID {
		select {
		case looked <- struct{}{}:
		default:
		}
		return nil
	}
	ended := make(chan error)
	go func() { ended <- box.follow(t.Context(), "/llmgw/dht/former", make(chan []Group)) }()
	<-looked
	box.mu.Lock()
	prefix = "/llmgw/dht/next"
	box.mu.Unlock()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, p := range box.d.Host.Mux().Protocols() {
		if strings.Contains(string(p), "former") {
			t.Errorf("%s is still served", p)
		}
	}
}
