package mesh

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ma "github.com/multiformats/go-multiaddr"

	"llmgw/mesh/token"
)

// newStranger is a libp2p host that is no llmgw.
func newStranger(t *testing.T, opts ...libp2p.Option) host.Host {
	t.Helper()
	h, err := libp2p.New(append([]libp2p.Option{
		libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"),
		libp2p.NoTransports, libp2p.Transport(tcp.NewTCPTransport),
		libp2p.Security(noise.ID, noise.New), libp2p.Muxer(yamux.ID, yamux.DefaultTransport),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func connect(t *testing.T, h host.Host, b *box) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := h.Connect(ctx, peer.AddrInfo{ID: b.peer(), Addrs: dialAddrs([]string{b.addr()})}); err != nil {
		t.Fatal(err)
	}
}

// everything a stranger reads on a protocol after it said data.
func askAs(t *testing.T, h host.Host, b *box, proto string, data []byte) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := h.NewStream(ctx, b.peer(), protocol.ID(proto))
	if err != nil {
		return nil
	}
	defer s.Reset()
	s.SetDeadline(time.Now().Add(patience))
	s.Write(data)
	s.CloseWrite()
	got, _ := io.ReadAll(s)
	return got
}

func TestStrangerGetsNothingButTheRefusal(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	served := make(chan string, 10)
	for _, proto := range []string{ProtocolInfer, ProtocolRPC, ProtocolAdmin} {
		a.mesh.Handle(proto, func(s Stream) {
			served <- s.Peer()
			s.Write([]byte("secret"))
			s.Close()
		})
	}
	b.join(a)
	allLive(t, a, b)

	h := newStranger(t)
	ps, err := pubsub.NewGossipSub(context.Background(), h, pubsub.WithFloodPublish(true))
	if err != nil {
		t.Fatal(err)
	}
	topic, err := ps.Join("/llmgw/" + a.mesh.view.Load().mesh.tag() + "/state/1")
	if err != nil {
		t.Fatal(err)
	}
	sub, err := topic.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	connect(t, h, a)

	greeting, err := encodeFrame(hello{Min: 1, Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	pull, err := encodeFrame(syncAsk{Kind: askPull, Mesh: meshBytes(a)})
	if err != nil {
		t.Fatal(err)
	}
	for _, proto := range []string{
		ProtocolInfer, ProtocolRPC, ProtocolAdmin, protocolSync, protocolHeartbeat,
		"/meshsub/1.1.0", "/meshsub/1.2.0", "/floodsub/1.0.0", "/ipfs/ping/1.0.0", "/llmgw/anything/1",
	} {
		if got := askAs(t, h, a, proto, append(bytes.Clone(greeting), pull...)); len(got) > 0 {
			t.Errorf("%s told a stranger %q", proto, got)
		}
	}
	select {
	case who := <-served:
		t.Errorf("a handler served %s", who)
	default:
	}

	// What the stranger publishes reaches nobody, what is published not the stranger.
	if err := topic.Publish(context.Background(), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	a.put("private", "1")
	eventually(t, "the members have the row", func() bool { return b.get("private") == "1" })
	if told := topic.ListPeers(); len(told) > 0 {
		t.Errorf("%v told the stranger what they subscribe to", told)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	for {
		msg, err := sub.Next(ctx)
		if err != nil {
			break
		}
		if msg.ReceivedFrom != h.ID() {
			t.Errorf("gossip reached the stranger: %q", msg.Data)
		}
	}
}

// TestStrangerIsNotSpokenTo: pubsub opens streams of its own accord to whoever
// speaks its protocols, and would begin with the topics of the mesh.
func TestStrangerIsNotSpokenTo(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	h := newStranger(t)
	spoken := make(chan string, 10)
	for _, proto := range []protocol.ID{"/meshsub/1.0.0", "/meshsub/1.1.0", "/meshsub/1.2.0", "/meshsub/1.3.0", "/floodsub/1.0.0"} {
		h.SetStreamHandler(proto, func(s network.Stream) {
			said := make([]byte, 1)
			if _, err := io.ReadFull(s, said); err == nil {
				spoken <- string(proto)
			}
			s.Reset()
		})
	}
	connect(t, h, a)
	a.put("private", "1")
	eventually(t, "the members have the row", func() bool { return b.get("private") == "1" })
	select {
	case proto := <-spoken:
		t.Errorf("spoke to a stranger on %s", proto)
	case <-time.After(300 * time.Millisecond):
	}
}

func meshBytes(b *box) []byte {
	id := b.mesh.view.Load().mesh
	return id[:]
}

// TestEveryProtocolIsGuarded goes by what the host itself says it speaks: a
// protocol that comes later is tried as well.
func TestEveryProtocolIsGuarded(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	h := newStranger(t)
	connect(t, h, a)
	offered, err := h.Peerstore().GetProtocols(a.peer())
	if err != nil || len(offered) == 0 {
		t.Fatalf("the host offers %v: %v", offered, err)
	}
	open := map[protocol.ID]bool{protocolJoin: true, "/ipfs/id/1.0.0": true, "/ipfs/id/push/1.0.0": true}
	for _, proto := range offered {
		if open[proto] {
			continue
		}
		if got := askAs(t, h, a, string(proto), []byte("\x00\x00\x00\x00")); len(got) > 0 {
			t.Errorf("%s told a stranger %q", proto, got)
		}
	}
}

func TestStrangersJoinIsRefusedWithoutTellingTheMesh(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	h := newStranger(t)
	connect(t, h, a)
	var said bytes.Buffer
	for _, frame := range []any{hello{Min: 1, Max: 1}, joinAsk{Mesh: make([]byte, 32), Nonce: make([]byte, nonceSize), By: byToken}} {
		raw, err := encodeFrame(frame)
		if err != nil {
			t.Fatal(err)
		}
		said.Write(raw)
	}
	got := bytes.NewReader(askAs(t, h, a, protocolJoin, said.Bytes()))
	var theirs hello
	var offer joinOffer
	if err := readFrame(got, maxHello, &theirs); err != nil {
		t.Fatal(err)
	}
	if err := readFrame(got, maxJoin, &offer); err != nil {
		t.Fatal(err)
	}
	if offer.Refused == nil || offer.Refused.Kind != string(token.WrongMesh) || len(offer.Chain) > 0 {
		t.Errorf("offer %+v", offer)
	}
	if bytes.Contains(raw(t, offer), []byte(a.mesh.MeshID())) {
		t.Error("the refusal names the mesh")
	}
	if got.Len() > 0 {
		t.Errorf("%d bytes after the refusal", got.Len())
	}
}

func raw(t *testing.T, v any) []byte {
	t.Helper()
	out, err := marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestMalformedJoins(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	h := newStranger(t)
	connect(t, h, a)
	greeting, err := encodeFrame(hello{Min: 1, Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	mesh := meshBytes(a)
	for name, v := range map[string]any{
		"no nonce":      joinAsk{Mesh: mesh, By: byToken},
		"unknown way":   joinAsk{Mesh: mesh, Nonce: make([]byte, nonceSize), By: "charm"},
		"an array":      []int{1, 2},
		"not a request": "hello",
	} {
		frame, err := encodeFrame(v)
		if err != nil {
			t.Fatal(err)
		}
		got := askAs(t, h, a, protocolJoin, append(bytes.Clone(greeting), frame...))
		if bytes.Contains(got, []byte("member")) {
			t.Errorf("%s: %q", name, got)
		}
	}
	for name, data := range map[string][]byte{
		"no hello":      {},
		"huge hello":    {0xff, 0xff, 0xff, 0xff},
		"broken hello":  {0, 0, 0, 2, 0xff, 0xff},
		"newer version": mustFrame(t, hello{Min: 7, Max: 9}),
	} {
		if got := askAs(t, h, a, protocolJoin, data); len(got) > 200 {
			t.Errorf("%s: %d bytes", name, len(got))
		}
	}
	b := newBox(t, "b")
	b.join(a) // and the box still admits
}

func mustFrame(t *testing.T, v any) []byte {
	t.Helper()
	frame, err := encodeFrame(v)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// TestProofOfAnotherIsWorthNothing replays a proof that was made for one issuer by
// one joiner: it must not hold for another joiner.
func TestProofOfAnotherIsWorthNothing(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	text := a.token(TokenOptions{})
	tok, err := token.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	v := a.mesh.view.Load()
	thief := newStranger(t).ID()
	transcript := token.Transcript{Mesh: v.mesh, Token: tok.ID, Joiner: "somebody else", Issuer: a.id()}
	err = a.mesh.redeem(v, thief, token.Transcript{Mesh: v.mesh, Token: tok.ID, Joiner: thief.String(), Issuer: a.id()}, transcript.Sign(tok.Key()))
	wantKind(t, err, token.Unknown)
	if a.mesh.view.Load().roster.standing(thief) != stranger {
		t.Error("the thief is in the roster")
	}
}

func TestGuestIsSentAway(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	a.mesh.guests.stay = 300 * time.Millisecond
	h := newStranger(t)
	connect(t, h, a)
	if h.Network().Connectedness(a.peer()) != network.Connected {
		t.Fatal("not connected")
	}
	eventually(t, "the guest is disconnected", func() bool { return h.Network().Connectedness(a.peer()) != network.Connected })
}

func TestGuestsAreRateLimited(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, err := peer.IDFromPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	addr := connAddrs{ma.StringCast("/ip4/192.0.2.1/tcp/1"), ma.StringCast("/ip4/192.0.2.2/tcp/2")}
	in := 0
	for range 10 * guestBurst {
		if a.mesh.gater.InterceptSecured(network.DirInbound, id, addr) {
			in++
		}
	}
	if in < guestBurst || in > 2*guestBurst {
		t.Errorf("%d of %d connections of a stranger let in", in, 10*guestBurst)
	}
	if a.mesh.gater.InterceptPeerDial(id) {
		t.Error("a stranger may be dialled")
	}
	if !a.mesh.gater.InterceptSecured(network.DirInbound, a.peer(), addr) {
		t.Error("members wait for strangers")
	}
}

type connAddrs struct{ local, remote ma.Multiaddr }

func (c connAddrs) LocalMultiaddr() ma.Multiaddr  { return c.local }
func (c connAddrs) RemoteMultiaddr() ma.Multiaddr { return c.remote }
