package mesh

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/token"
)

// patience bounds what a test waits for; nothing takes that long on a box that
// works.
const patience = 90 * time.Second

// box is one daemon's mesh in this process, with a store on disk.
type box struct {
	t     *testing.T
	cfg   Config
	dir   string
	store *store.Store
	mesh  *Mesh

	stop context.CancelFunc
	done chan struct{}
}

// portsFrom and ports are below what the system gives to connections that go out: one of
// those must not take the port of a box that is down for a moment.
const portsFrom, ports = 10_000, 20_000

var lastPort atomic.Uint32

func init() { lastPort.Store(uint32(os.Getpid()) * 97) } // beside other test processes

// freePort is an address of 127.0.0.1 that no other box of this process has.
func freePort(t *testing.T) string {
	t.Helper()
	for range ports {
		addr := fmt.Sprintf("127.0.0.1:%d", portsFrom+lastPort.Add(1)%ports)
		l, err := net.Listen("tcp4", addr)
		if err != nil {
			continue
		}
		l.Close()
		return addr
	}
	t.Fatal("no port is free")
	return ""
}

// newBox starts a box on a free port of 127.0.0.1.
func newBox(t *testing.T, name string, change ...func(*Config)) *box {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b := &box{t: t, dir: t.TempDir(), cfg: Config{
		Key: key, Name: name, Version: "test", Listen: freePort(t), Log: testLog(t, name),
		OfferWait: patience,
	}}
	for _, c := range change {
		c(&b.cfg)
	}
	b.start()
	t.Cleanup(b.kill)
	return b
}

// testLog writes to the test's log when LLMGW_TEST_LOG is set.
func testLog(t *testing.T, name string) *slog.Logger {
	if os.Getenv("LLMGW_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	h := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})
	return slog.New(h).With("box", name)
}

func (b *box) start() {
	b.t.Helper()
	if err := b.tryStart(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) tryStart() error {
	var err error
	b.store, err = store.Open(b.dir, store.Options{Now: b.cfg.Now})
	if err != nil {
		return err
	}
	b.cfg.Store = b.store
	b.mesh, err = Open(b.cfg)
	if err != nil {
		return errors.Join(err, b.store.Close())
	}
	// The same port when it starts again, as a real box has.
	b.cfg.Listen = fmt.Sprintf("127.0.0.1:%d", b.mesh.port())
	ctx, stop := context.WithCancel(context.Background())
	b.stop, b.done = stop, make(chan struct{})
	go func() {
		defer close(b.done)
		b.mesh.Run(ctx)
	}()
	return nil
}

// kill ends the box without a word to its peers.
func (b *box) kill() {
	if b.stop == nil {
		return
	}
	b.stop()
	<-b.done
	b.mesh.Close()
	b.store.Close()
	b.stop = nil
}

func (b *box) id() string { return b.mesh.Self() }

func (b *box) peer() peer.ID { return b.mesh.self }

func (b *box) addr() string { return b.cfg.Listen }

// token makes a join token at b.
func (b *box) token(o TokenOptions) string {
	b.t.Helper()
	text, err := b.mesh.NewToken(context.Background(), o)
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

// join has b join the mesh of other.
func (b *box) join(other *box) JoinResult {
	b.t.Helper()
	result, err := b.mesh.Join(context.Background(), other.token(TokenOptions{}), false)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

func (b *box) put(key, value string) {
	b.t.Helper()
	_, err := b.store.Update(func(tx *store.Tx) error {
		return tx.Set(crdt.NewKey("things", key), "v", []byte(value))
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) get(key string) string {
	b.t.Helper()
	row, _, err := b.store.Get(crdt.NewKey("things", key))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(row.Cells["v"].Value)
}

// sees says in what state b sees other; empty when it does not know it.
func (b *box) sees(other *box) State {
	for _, n := range b.mesh.Nodes() {
		if n.ID == other.id() {
			return n.State
		}
	}
	return ""
}

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// findsAgain says whether b, started again, could dial other.
func (b *box) findsAgain(other *box) bool {
	row, ok := b.mesh.view.Load().roster.members[other.peer()]
	return ok && len(row.addrs) > 0
}

// allLive waits until every box sees every other one live, and would find it again.
func allLive(t *testing.T, boxes ...*box) {
	t.Helper()
	for _, a := range boxes {
		for _, b := range boxes {
			if a != b {
				eventually(t, a.cfg.Name+" sees "+b.cfg.Name+" live", func() bool { return a.sees(b) == StateLive && a.findsAgain(b) })
			}
		}
	}
}

func wantKind(t *testing.T, err error, kind token.Kind) *token.Error {
	t.Helper()
	var typed *token.Error
	if !errors.As(err, &typed) || typed.Kind != kind {
		t.Fatalf("got error %v, want kind %s", err, kind)
	}
	return typed
}

// testClock is a wall clock that a test moves.
type testClock struct {
	mu     sync.Mutex
	offset time.Duration
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

func (c *testClock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}
