package mesh

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"llmgw/crdt"
	"llmgw/mesh/token"
)

// memberProtocols are those of the mesh itself that members speak, and that read a frame
// after the hello.
var memberProtocols = []string{protocolSync, protocolHeartbeat, protocolEscrow, protocolVerdict}

// said is what a peer does on a stream, and whether that is its own doing.
type said struct {
	data   []byte
	then   func(network.Stream) error // after it; nil: nothing
	blamed bool
}

func closeWrite(s network.Stream) error { return s.CloseWrite() }
func reset(s network.Stream) error      { return s.Reset() }

// rawStream opens a stream to a member without a word.
func (b *box) rawStream(t *testing.T, to *box, proto string) network.Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := b.mesh.host.NewStream(ctx, to.peer(), protocol.ID(proto))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// drained reads what the other side still says, to its end.
func drained(t *testing.T, what string, s network.Stream) []byte {
	t.Helper()
	s.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(s)
	if network, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && network.Timeout() {
		t.Errorf("%s: the stream does not end", what)
	}
	s.Reset()
	return got
}

// blames says whether b holds an offence against another.
func (b *box) blames(other *box) bool {
	return slices.ContainsFunc(b.mesh.Alarms(), func(a Alarm) bool {
		return a.Kind == AlarmMisbehaving && strings.HasPrefix(a.Text, other.cfg.Name+" ")
	})
}

// forgives forgets all offences.
func (b *box) forgives() {
	b.mesh.events.mu.Lock()
	defer b.mesh.events.mu.Unlock()
	clear(b.mesh.events.last)
}

// TestStreamsThatBeginWrong: on each protocol, in the hello and after it. The stream ends,
// the sender is named if that was its own doing, and all goes on.
func TestStreamsThatBeginWrong(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	b.mesh.puller.hold() // its own pulls would mix in
	hi := mustFrame(t, b.mesh.hello())
	after := func(data ...byte) []byte { return append(bytes.Clone(hi), data...) }
	huge := binary.BigEndian.AppendUint32(nil, 1<<31)
	for name, c := range map[string]said{
		"a huge hello":         {data: huge, blamed: true},
		"a hello of nonsense":  {data: []byte{0, 0, 0, 2, 0xff, 0xff}, blamed: true},
		"a hello of no bytes":  {data: []byte{0, 0, 0, 0}, blamed: true},
		"newer versions alone": {data: mustFrame(t, hello{Min: 7, Max: 9})},
		"no version":           {data: mustFrame(t, hello{})},
		"no word":              {then: closeWrite},
		"a reset at once":      {then: reset},
		"half a hello":         {data: hi[:len(hi)/2], then: closeWrite},
		"a huge frame":         {data: after(huge...), blamed: true},
		"a frame of nonsense":  {data: after(0, 0, 0, 1, 0xff), blamed: true},
		"a frame of no bytes":  {data: after(0, 0, 0, 0), blamed: true},
		"another type":         {data: after(0, 0, 0, 2, 0x61, 'x'), blamed: true},
		"a hello and no more":  {data: hi, then: closeWrite},
		"half a frame":         {data: after(0, 0, 0, 9, 0xa1), then: closeWrite},
		"reset in a frame":     {data: after(0, 0, 0, 9, 0xa1), then: reset},
	} {
		for _, proto := range memberProtocols {
			what := name + " on " + proto
			s := b.rawStream(t, a, proto)
			s.Write(c.data)
			if c.then != nil {
				c.then(s)
			}
			drained(t, what, s)
			if c.blamed {
				eventually(t, what+" is named", func() bool { return a.blames(b) })
			} else if a.blames(b) {
				t.Errorf("%s: %+v", what, a.mesh.Alarms())
			}
			a.forgives()
		}
	}
	a.put("after all that", "1")
	eventually(t, "the two still agree", func() bool { return b.get("after all that") == "1" && a.sees(b) == StateLive && b.sees(a) == StateLive })
}

// TestQuestionsThatMakeNoSense: well-formed frames that no llmgw sends end their stream,
// and give nothing away.
func TestQuestionsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	a.put("private", "1")
	mesh, other := meshBytes(a), make([]byte, 32)
	for name, c := range map[string]struct {
		proto string
		frame any
	}{
		"a sync of no kind":          {protocolSync, syncAsk{Mesh: mesh}},
		"a sync of a later kind":     {protocolSync, syncAsk{Kind: 99, Mesh: mesh}},
		"a pull of another mesh":     {protocolSync, syncAsk{Kind: askPull, Mesh: other}},
		"a pull of no mesh":          {protocolSync, syncAsk{Kind: askPull}},
		"an offer of another mesh":   {protocolSync, syncAsk{Kind: askOffer, Mesh: other}},
		"a digest of another mesh":   {protocolSync, syncAsk{Kind: askDigest, Mesh: other}},
		"counts of another mesh":     {protocolSync, syncAsk{Kind: askMoney, Mesh: other}},
		"sums that are none":         {protocolSync, syncAsk{Kind: askMoney, Mesh: mesh, Sums: []byte{1, 2, 3}}},
		"rights of another mesh":     {protocolEscrow, escrowAsk{Mesh: other, Store: uint64(b.store.ID())}},
		"rights for another":         {protocolEscrow, escrowAsk{Mesh: mesh, Store: 7}},
		"a verdict of another mesh":  {protocolVerdict, verdict{Mesh: other}},
		"a verdict of no rows":       {protocolVerdict, verdict{Mesh: mesh, Rows: []byte{0xff}}},
		"a bucket that is not there": {protocolSync, syncAsk{Kind: askBuckets, Mesh: mesh, Buckets: []int{-1, 1 << 40}}},
		"a row that is not there":    {protocolSync, syncAsk{Kind: askRows, Mesh: mesh, Rows: [][]byte{nil, {0xff}, []byte(crdt.NewKey("things", "none"))}}},
	} {
		s := b.rawStream(t, a, c.proto)
		s.Write(mustFrame(t, b.mesh.hello()))
		s.Write(mustFrame(t, c.frame))
		s.CloseWrite()
		if got := drained(t, name, s); bytes.Contains(got, []byte("private")) {
			t.Errorf("%s: answered with %q", name, got)
		}
	}
	allLive(t, a, b)
}

// warnings keeps what a box warns of.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler               { return w }
func (w *warnings) WithGroup(string) slog.Handler                    { return w }
func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, r.Message)
	return nil
}

func (w *warnings) has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.texts, text)
}

// TestStalledStreamsHoldUpNobody: a member that stops in the midst of everything takes no
// other member's place, and does not hold up the end of the daemon.
func TestStalledStreamsHoldUpNobody(t *testing.T) {
	t.Parallel()
	seen := &warnings{}
	a, b, c := newBox(t, "a", func(cfg *Config) { cfg.Log = slog.New(seen) }), newBox(t, "b"), newBox(t, "c")
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	hi := mustFrame(t, b.mesh.hello())
	pull := append(bytes.Clone(hi), mustFrame(t, syncAsk{Kind: askPull, Mesh: meshBytes(a)})...)
	for range syncAtOnce + 1 {
		for _, data := range [][]byte{nil, hi[:5], hi, append(bytes.Clone(hi), 0, 0, 1, 0, 0xa1), pull} {
			for _, proto := range []string{protocolSync, protocolEscrow, protocolVerdict, protocolJoin} {
				s := b.rawStream(t, a, proto)
				s.Write(data)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range 5 {
		a.put(fmt.Sprint("row ", i), "1")
		if err := c.mesh.pull(ctx, a.peer()); err != nil {
			t.Fatalf("another member's pull: %v", err)
		}
	}
	if c.get("row 4") != "1" || a.blames(c) {
		t.Errorf("c is held up: %q, alarms %+v", c.get("row 4"), a.mesh.Alarms())
	}
	if err := b.mesh.probe(ctx, a.peer()); err != nil {
		t.Errorf("its own heartbeats are not answered: %v", err)
	}
	a.kill()
	if seen.has("a stream handler did not end with its stream") {
		t.Error("a handler outlived the daemon")
	}
}

// TestBannedBoxOnEveryProtocol: it learns of its ban, by join and by verdict, and nothing
// else by anything that the host speaks.
func TestBannedBoxOnEveryProtocol(t *testing.T) {
	t.Parallel()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "secret name of c")
	for _, proto := range []string{ProtocolInfer, ProtocolRPC, ProtocolAdmin} {
		a.mesh.Handle(proto, func(s Stream) { s.Write([]byte("served")); s.Close() })
	}
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	tok, err := token.Parse(a.token(TokenOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	b.kill()
	if err := a.mesh.Ban(t.Context(), b.id(), "sold"); err != nil {
		t.Fatal(err)
	}
	key, err := crypto.UnmarshalEd25519PrivateKey(ed25519.PrivateKey(b.cfg.Key))
	if err != nil {
		t.Fatal(err)
	}
	h := newStranger(t, libp2p.Identity(key))
	connect(t, h, a)
	hi := mustFrame(t, hello{Min: 1, Max: 1, Store: uint64(7)})
	frames := map[string][]byte{
		protocolSync:      mustFrame(t, syncAsk{Kind: askPull, Mesh: meshBytes(a)}),
		protocolHeartbeat: mustFrame(t, beat{Kind: beatProbe}),
		protocolEscrow:    mustFrame(t, escrowAsk{Mesh: meshBytes(a), Store: 7}),
		protocolVerdict:   mustFrame(t, verdict{Mesh: meshBytes(a), Rows: emptyItems(t)}),
		protocolJoin:      mustFrame(t, joinAsk{Mesh: tok.Mesh[:], Nonce: make([]byte, nonceSize), By: byToken}),
	}
	for _, proto := range a.mesh.host.Mux().Protocols() {
		got := askAs(t, h, a, string(proto), append(bytes.Clone(hi), frames[string(proto)]...))
		if bytes.Contains(got, []byte("secret name")) || bytes.Contains(got, []byte("served")) {
			t.Errorf("%s told %q", proto, got)
		}
		r := bytes.NewReader(got)
		switch string(proto) {
		case protocolJoin:
			var offer joinOffer
			if _, err := readHello(r, spoken); err != nil {
				t.Fatal(err)
			}
			if err := readFrame(r, maxJoin, &offer); err != nil || offer.Refused == nil || offer.Refused.Kind != string(token.Banned) || offer.Refused.Detail != "sold" || len(offer.Chain) > 0 {
				t.Errorf("a join is answered with %+v, %v", offer, err)
			}
		case protocolVerdict:
			wantBan(t, r, a, b.peer())
		case "/ipfs/id/1.0.0", "/ipfs/id/push/1.0.0":
		default:
			if len(got) > 0 {
				t.Errorf("%s told a banned box %q", proto, got)
			}
		}
	}
	allLive(t, a, c)
}

func emptyItems(t *testing.T) []byte {
	t.Helper()
	raw, err := crdt.EncodeItems(nil)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// wantBan reads a verdict that convinces its reader of a ban.
func wantBan(t *testing.T, r io.Reader, a *box, p peer.ID) {
	t.Helper()
	var told verdict
	if _, err := readHello(r, spoken); err != nil {
		t.Fatal(err)
	}
	if err := readFrame(r, maxJoin, &told); err != nil {
		t.Fatal(err)
	}
	rows, err := crdt.DecodeItems(told.Rows)
	if err != nil {
		t.Fatal(err)
	}
	ban := evaluate(a.mesh.view.Load().mesh, rows).banOf(p)
	if ban.By != a.id() || ban.Reason != "sold" {
		t.Errorf("the verdict says %+v", ban)
	}
}

// TestJoinsOfOneConnectionAreBounded: a guest that opens many at once and says nothing has
// only some of them answered.
func TestJoinsOfOneConnectionAreBounded(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	h := newStranger(t)
	connect(t, h, a)
	ended := make(chan struct{}, 10*joinsAtOnce)
	for range 10 * joinsAtOnce {
		s, err := h.NewStream(t.Context(), a.peer(), protocolJoin)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Reset()
		s.Write(mustFrame(t, hello{Min: 1, Max: 1}))
		go func() { io.Copy(io.Discard, s); ended <- struct{}{} }()
	}
	for range 9 * joinsAtOnce {
		<-ended // those that are too many; the others wait for a question
	}
	a.mesh.guests.mu.Lock()
	for _, n := range a.mesh.guests.held {
		if n > joinsAtOnce {
			t.Errorf("%d joins are answered at once", n)
		}
	}
	a.mesh.guests.mu.Unlock()
	newBox(t, "b").join(a) // on a connection of its own
}
