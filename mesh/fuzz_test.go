package mesh

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/catalog"
	"llmgw/mesh/token"
)

// FuzzFrames reads whatever a peer sends as each kind of frame, and uses it as far as
// that goes without a box.
func FuzzFrames(f *testing.F) {
	c := newCast(f, "r", "a")
	items, err := crdt.EncodeItems(c.items(c.record("r", "", 1, RoleAdmin)))
	if err != nil {
		f.Fatal(err)
	}
	presence, err := marshal(catalog.Presence{Peer: c.ids["a"].String(), Boot: 3})
	if err != nil {
		f.Fatal(err)
	}
	cells, err := crdt.EncodeMoney(crdt.Money{Escrows: []crdt.EscrowPart{{Account: budget, Cells: []crdt.EscrowEntry{{From: 7, To: 8, Micros: 1}}}}})
	if err != nil {
		f.Fatal(err)
	}
	var sums crdt.MoneySums
	for _, v := range []any{
		syncAsk{Kind: askMoney, Index: 1, Sums: sums.Encode()}, syncAsk{Kind: askPull, Known: &syncKnown{Index: 1, Until: 2, Buckets: []int{3}, Has: []uint64{4}}},
		moneyPage{Index: 1, Next: 2, Money: cells}, moneyPage{Again: true}, escrowAnswer{Cells: cells},
		escrowAsk{Mesh: c.root.mesh[:], Store: 7, Need: 8, Total: 9}.of(budget),
		syncAsk{Kind: askPull, Mesh: c.root.mesh[:], Index: 1, Seq: 2, Buckets: []int{1}, Rows: [][]byte{{1}}},
		syncPage{Index: 1, Next: 2, Items: items, KnownIndex: 3, KnownSeq: 4},
		beat{Kind: beatPresence, Boot: 1, Presence: presence, State: 7}, beat{Kind: beatAsk, About: c.ids["a"].String()},
		digestAnswer{Items: items}, verdict{Mesh: c.root.mesh[:], Rows: items},
		joinAsk{Mesh: c.root.mesh[:], Nonce: make([]byte, nonceSize)}, joinAnswer{Rows: items},
		doctorAnswer{Checks: []Check{{Name: CheckTCP, Result: CheckOK, Text: "x"}}}, hello{Min: 1, Max: 1, Uptime: 9, Away: tooLong},
	} {
		frame, err := encodeFrame(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		read := func(v any) bool { return readFrame(bytes.NewReader(data), maxSync, v) == nil }
		useItems := func(raw []byte) {
			if items, err := crdt.DecodeItems(raw); err == nil {
				kept, _ := screen(c.root.mesh, nil, items)
				verdictRows(c.root.mesh, nil, kept)
				evaluate(c.root.mesh, kept)
			}
		}
		var page syncPage
		if read(&page) {
			useItems(page.Items)
		}
		var told verdict
		if read(&told) {
			useItems(told.Rows)
		}
		var answer joinAnswer
		if read(&answer) {
			useItems(answer.Rows)
			if answer.Refused != nil {
				_ = answer.Refused.err().Error()
			}
		}
		var b beat
		if read(&b) {
			var p catalog.Presence
			if unmarshal(b.Presence, &p) == nil {
				coarsePresence(p)
				multiaddrs(capAddresses(p.Addresses))
			}
		}
		var h hello
		if read(&h) {
			if up := h.uptime(); up < 0 || up > 250*366*24*time.Hour {
				t.Errorf("uptime %s", up)
			}
			h.skew(time.Now())
			_ = h.check(spoken)
		}
		var digest digestAnswer
		if read(&digest) {
			useItems(digest.Items)
			_, _ = crdt.DecodeDigest(digest.Digest)
			_, _ = crdt.DecodeEntries(digest.Entries)
		}
		useMoney(read)
		var offer joinOffer
		if read(&offer) {
			if _, err := verifyChain(c.root.mesh, c.ids["a"], offer.Chain); err == nil {
				t.Error("a chain of its own was taken for the mesh's")
			}
		}
		read(new(syncAck))
		read(new(joinAsk))
		read(new(joinProof))
		read(new(doctorAnswer))
	})
}

// useMoney reads the frames about spending.
func useMoney(read func(any) bool) {
	var ask syncAsk
	if read(&ask) {
		ask.Known.of(1)
		_, _ = crdt.DecodeMoneySums(ask.Sums)
	}
	var page moneyPage
	if read(&page) {
		_, _ = crdt.DecodeMoney(page.Money)
	}
	var question escrowAsk
	if read(&question) && question.check() == nil {
		question.account()
	}
	var answer escrowAnswer
	if read(&answer) {
		if m, err := crdt.DecodeMoney(answer.Cells); err == nil {
			tellsOf(m, budget, 7)
			writtenAllBy(m, 7)
		}
	}
}

// FuzzTokenRow: nothing that a member writes into a token row admits anybody, but what
// an admin signed.
func FuzzTokenRow(f *testing.F) {
	c := newCast(f, "r", "a")
	v := &view{mesh: c.root.mesh, roster: evaluate(c.root.mesh, c.items(c.record("r", "", 1, RoleAdmin)))}
	id := token.ID{1, 2, 3}
	body := tokenBody{Mesh: c.root.mesh[:], ID: id[:], Key: make([]byte, 32), Role: RoleAdmin, Uses: 1, Issuer: c.ids["r"].String()}
	good, err := sign(kindToken, body, c.keys["r"])
	if err != nil {
		f.Fatal(err)
	}
	body.Issuer = c.ids["a"].String()
	stranger, err := sign(kindToken, body, c.keys["a"])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, "use/x/1")
	f.Add(stranger, "use/")
	f.Fuzz(func(t *testing.T, blob []byte, name string) {
		row := crdt.Row{Length: 1, Cells: map[string]crdt.Cell{cellRecord: {Value: blob}, name: {Value: []byte{1}}}}
		if name != cellRecord {
			if body, err := checkToken(v, id, row); err == nil && body.Issuer != c.ids["r"].String() {
				t.Errorf("a token of no admin is taken: %+v", body)
			}
		}
		usesOf(row)
		revoked(row)
	})
}

// FuzzPeerByHand: what a person types as a peer is an address that can be dialled, or an
// error.
func FuzzPeerByHand(f *testing.F) {
	for _, text := range []string{
		"192.0.2.1:8771", "[fd00::1]:8771", "box.example:1", "/ip4/192.0.2.1/tcp/8771",
		"/dns4/box.example/tcp/8771/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN", "/ip4/1.2.3.4/udp/1", ":", "",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if addr, _, err := readStatic(text); err == nil {
			if _, _, err := net.SplitHostPort(addr); err != nil {
				t.Errorf("%q became %q", text, addr)
			}
		}
		dialAddrs([]string{text})
		for _, a := range multiaddrs([]string{text}) {
			plainAddr(a)
			listening(a, multiaddrs([]string{text}))
			announced(multiaddrs([]string{text}))
		}
		if n := []rune(cleanName(text)); len(n) > maxName {
			t.Errorf("a name of %d characters", len(n))
		}
		decodeAddresses([]byte(text))
	})
}

// FuzzCursor: whatever a peer says of the own log, the store goes on.
func FuzzCursor(f *testing.F) {
	m := bareMesh(f, "self")
	s := m.store
	f.Add(uint64(0), uint64(0), int64(0), uint8(0))
	f.Add(s.IndexID(), uint64(1<<40), int64(1<<40), uint8(tooLong))
	f.Fuzz(func(t *testing.T, index, seq uint64, uptime int64, away uint8) {
		p := peer.ID("peer")
		h := hello{Uptime: uptime, Away: away}
		m.absence.heard(p, h)
		if err := m.absence.acknowledged(p, store.Cursor{IndexID: index, Seq: seq}); err != nil {
			t.Fatal(err)
		}
		got, err := m.absence.meets(p, h)
		if err != nil || got.take && got.reseed || got.give && got.reseed {
			t.Errorf("terms %+v, %v", got, err)
		}
	})
}
