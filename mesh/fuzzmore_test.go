package mesh

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"llmgw/crdt"
	"llmgw/mesh/catalog"
	"llmgw/mesh/discovery"
)

// FuzzGossip: whatever a member publishes, on either topic, is read or refused, and what is
// accepted is its own.
func FuzzGossip(f *testing.F) {
	m := bareMesh(f, "a")
	m.signals = &signals{m: m}
	g := bareGossip(m)
	p := m.adds(f, 1, RoleMember)
	money, err := crdt.EncodeMoney(crdt.Money{Spend: []crdt.SpendEntry{{Account: budget, By: crdt.SpendID{Store: 5, Generation: 1}, Micros: 3}}})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{rowBy(f, 5), rowBy(f, 5, 6), rowBy(f), append([]byte{byte(SignalSpend)}, money...), {byte(SignalWarm), 1}, {250}, nil} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m.authors.learn(p, 4)
		m.authors.learn(p, 5) // believed anew
		m.warden.forget(p)
		msg := published(p, data)
		if g.validate(t.Context(), p, msg) == accept {
			items, ok := msg.ValidatorData.([]crdt.Item)
			if !ok || !writtenBy(items, 5) {
				t.Errorf("accepted as %v", msg.ValidatorData)
			}
			g.wrote(items)
			clear(g.pending)
		}
		signal := published(p, data)
		if m.signals.validate(t.Context(), p, signal) == accept {
			if len(data) == 0 {
				t.Error("a signal of no bytes")
			}
			if part, ok := signal.ValidatorData.(crdt.Money); ok && (!writtenAllBy(part, 5) || len(part.Folds) > 0) {
				t.Errorf("spending of others: %+v", part)
			}
		}
	})
}

// FuzzBeat: whatever a peer sends on its heartbeat stream, it stays itself, and of this
// box nothing changes.
func FuzzBeat(f *testing.F) {
	m := bareMesh(f, "a")
	p := m.adds(f, 1, RoleMember)
	l := m.speaksTo(p, 1)
	m.speaksTo(m.adds(f, 2, RoleMember), 2)
	presence, err := marshal(catalog.Presence{Boot: 3, Sequence: 4, Name: "n", Addresses: []string{"/ip4/192.0.2.1/tcp/1"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(beatPresence), uint64(3), int64(5), uint64(7), uint64(0), presence)
	f.Add(uint8(beatPulse), m.boot, time.Now().UnixMilli(), uint64(0), m.boot-1, []byte(nil))
	f.Add(uint8(255), uint64(1<<63), int64(-1<<63), ^uint64(0), ^uint64(0), []byte{0xff})
	f.Fuzz(func(t *testing.T, kind uint8, boot uint64, wall int64, state, twin uint64, raw []byte) {
		s := &stream{m: m}
		l.known, l.presence = false, catalog.Presence{}
		l.take(s, beat{Kind: kind, Boot: boot, Wall: wall, State: state, Twin: twin, Presence: raw})
		if l.health.current() != StateLive || l.health.heardAt.After(m.now()) {
			t.Errorf("heard at %s, %s", l.health.heardAt, l.health.current())
		}
		if l.known && (l.presence.Peer != p.String() || cleanName(l.presence.Name) != l.presence.Name || len(l.presence.Addresses) > maxAddresses) {
			t.Errorf("presence %+v", l.presence)
		}
		if m.clones.stopped() {
			t.Error("one member alone stopped this box")
		}
		skewText(l.skew, time.Second)
		m.clockAlarms()
		l.addrs()
	})
}

// FuzzScreen: a row of anything, under any key, changes nothing for the members that are
// there, passes or does not, and passes again if it did.
func FuzzScreen(f *testing.F) {
	c := newCast(f, "a", "b", "x")
	own := mergeItems(c.items(c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleMember)))
	for _, item := range c.items(c.record("x", "b", 1, RoleAdmin), c.ban("a", "b", 2, 5), c.left("x", 1), c.record("x", "x", 1, RoleAdmin)) {
		name, cell := cellOf(item)
		f.Add([]byte(item.Key), item.Row.Length, name, uint64(cell.At), cell.Value)
	}
	f.Add([]byte(memberKey(c.ids["a"])), uint64(2), cellName, uint64(1), []byte("n"))
	f.Fuzz(func(t *testing.T, key []byte, length uint64, name string, at uint64, value []byte) {
		item := crdt.Item{Key: crdt.Key(key), Row: crdt.Row{Length: length, Cells: map[string]crdt.Cell{name: {At: crdt.HLC(at), By: 3, Value: value}}}}
		kept, dropped := screen(c.root.mesh, own, []crdt.Item{item})
		if len(kept)+dropped != 1 {
			t.Fatalf("%d kept, %d dropped", len(kept), dropped)
		}
		r := evaluate(c.root.mesh, mergeItems(own, kept))
		if !r.active(c.ids["a"]) || !r.active(c.ids["b"]) || r.admins("") != 1 || r.standing(c.ids["x"]) != stranger {
			t.Fatalf("a row of anything rules: %s", describe(r, c, []string{"a", "b", "x"}))
		}
		if again, _ := screen(c.root.mesh, own, kept); len(again) != len(kept) {
			t.Fatal("what passed does not pass again")
		}
	})
}

// FuzzSavedMesh: whatever is left on the disk of a replacement that a crash cut short, the
// box starts in one mesh as a member, or says that it cannot.
func FuzzSavedMesh(f *testing.F) {
	c := newCast(f, "a")
	rows, err := crdt.EncodeItems(c.items(c.record("a", "", 1, RoleAdmin)))
	if err != nil {
		f.Fatal(err)
	}
	good, err := marshal(savedMesh{Mesh: c.root.mesh[:], Rows: rows})
	if err != nil {
		f.Fatal(err)
	}
	m := bareMesh(f, "m")
	f.Add(good, []byte(nil))
	f.Add([]byte(nil), good)
	f.Add([]byte{0xff}, []byte{0xa0})
	f.Fuzz(func(t *testing.T, pending, current []byte) {
		if err := m.foundRandom(); err != nil {
			t.Fatal(err)
		}
		for name, raw := range map[string][]byte{metaPending: pending, metaCurrent: current} {
			if err := m.store.SetMeta(name, raw); err != nil {
				t.Skip(err)
			}
		}
		err := m.openMembership()
		if v := m.view.Load(); err == nil && v.roster.mesh != v.mesh {
			t.Errorf("a view of two meshes")
		}
		if err == nil {
			m.Provisional()
			if pending, ok, _ := m.readSaved(metaPending); ok {
				t.Errorf("still pending: %+v", pending)
			}
		}
		if err := m.store.SetMeta(metaPending, nil); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzSighting: whatever a link announces is listed with words that can be shown, and
// dialled only as an address.
func FuzzSighting(f *testing.F) {
	m := bareMesh(f, "a")
	f.Add("12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN", "rack 7", "192.0.2.1:8771", uint64(3), true)
	f.Add(m.Self(), "", "[fe80::1%eth0]:1", m.boot+1, false)
	f.Add("", "\x1b", ":", uint64(0), true)
	f.Fuzz(func(t *testing.T, id, name, addr string, boot uint64, settled bool) {
		g := discovery.Group{Source: "mdns", Peer: id, Name: name, Addrs: []string{addr}, Boot: boot, Settled: settled}
		m.sights.sources["mdns"] = []discovery.Group{g}
		for _, a := range m.meshAlarms() {
			if cleanName(name) == "" && id == "" && a.Text == "" {
				t.Error("an alarm about nobody")
			}
		}
		m.sights.whose(g, nil)
		if p, err := peer.Decode(id); err == nil {
			m.sights.byMDNS(p)
			m.sights.begin(p, m.now(), settled)
			m.sights.end(p)
			m.byHand(p)
		}
		for _, a := range dialAddrs(g.Addrs) {
			if _, err := a.ValueForProtocol(ma.P_TCP); err != nil {
				t.Errorf("%q is dialled as %s", addr, a)
			}
			back := dialAddrs([]string{plainAddr(a)})
			if len(back) != 1 || !back[0].Equal(a) {
				t.Errorf("%s is written %s, and read as %v", a, plainAddr(a), back)
			}
		}
	})
}

// FuzzEscrowCells: cells of any kind about a hard budget, from one who may tell of it, give
// nobody's rights away and make none below what is spent.
func FuzzEscrowCells(f *testing.F) {
	seed := func(from, to, micros uint64) []byte {
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, from), to), micros)
	}
	f.Add(seed(7, 7, 100), uint64(10))
	f.Add(append(seed(7, 7, 1<<63), seed(7, 8, ^uint64(0))...), uint64(0))
	m := bareMesh(f, "a")
	round := uint64(0)
	f.Fuzz(func(t *testing.T, raw []byte, cost uint64) {
		round++
		a := crdt.Account{Budget: "b", Period: string(binary.BigEndian.AppendUint64(nil, round))}
		e := m.Escrow()
		clear(e.purses)
		if err := e.raise(a, 1000); err != nil {
			t.Fatal(err)
		}
		var cells []crdt.EscrowEntry
		for ; len(raw) >= 24 && len(cells) < 50; raw = raw[24:] {
			c := crdt.EscrowEntry{From: crdt.ReplicaID(binary.BigEndian.Uint64(raw)), To: crdt.ReplicaID(binary.BigEndian.Uint64(raw[8:])), Micros: binary.BigEndian.Uint64(raw[16:])}
			if c.From != m.store.ID() && c.To != m.store.ID() { // else a store of the same name, or a gift
				cells = append(cells, c)
			}
		}
		encoded, err := crdt.EncodeMoney(crdt.Money{Escrows: []crdt.EscrowPart{{Account: a, Cells: cells}}})
		if err != nil {
			return
		}
		part, err := crdt.DecodeMoney(encoded)
		if err != nil {
			return
		}
		if err := m.mergeMoney(m.view.Load().generation, m.self, part); err != nil {
			return
		}
		if got := e.Rights(a); got != 1000 {
			t.Fatalf("rights of 1000 became %d by the cells of others: %+v", got, cells)
		}
		taken, err := e.Take(context.Background(), a, 0, cost%1001)
		if total := e.Total(a); err != nil && total == 0 {
			return // burned by others, as far as they tell
		}
		if err == nil {
			if err := taken.Settle(cost % 1001 / 2); err != nil {
				t.Fatal(err)
			}
			if got := e.Rights(a); got < 0 {
				t.Fatalf("rights %d", got)
			}
		}
	})
}
