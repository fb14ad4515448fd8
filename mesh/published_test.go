package mesh

import (
	"bytes"
	"context"
	"errors"
	"testing"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
)

// published is a message as pubsub hands it to a validator, its signature checked.
func published(from peer.ID, data []byte) *pubsub.Message {
	return &pubsub.Message{Message: &pb.Message{From: []byte(from), Data: data}}
}

// rowBy is a row with a cell of that store.
func rowBy(t testing.TB, by ...crdt.ReplicaID) []byte {
	t.Helper()
	cells := map[string]crdt.Cell{}
	for i, id := range by {
		cells[string(rune('a'+i))] = crdt.Cell{At: 1, By: id, Value: []byte("v")}
	}
	raw, err := crdt.EncodeItems([]crdt.Item{{Key: crdt.NewKey("things", "t"), Row: crdt.Row{Length: 1, Cells: cells}}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// bareGossip is m's part in gossip without pubsub.
func bareGossip(m *Mesh) *gossip {
	return &gossip{m: m, pending: map[crdt.Key]crdt.Row{}, wake: make(chan struct{}, 1)}
}

const (
	accept = pubsub.ValidationAccept
	reject = pubsub.ValidationReject
	ignore = pubsub.ValidationIgnore
)

// TestWhatGossipIsTaken: by who wrote it and in whose name, and what follows.
func TestWhatGossipIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		data   []byte
		before func(m *Mesh, p peer.ID)
		from   byte // 1: the member, 9: a stranger, 0: this box
		want   pubsub.ValidationResult
		blamed string // the offence, if any
		pulled bool   // from the author
		any    bool   // from whomever
	}{
		"its own cell":                    {data: rowBy(t, 5), from: 1, want: accept},
		"a tombstone has no cells":        {data: rowBy(t), from: 1, want: accept},
		"this box's own":                  {data: []byte("whatever"), from: 0, want: accept},
		"a stranger's":                    {data: rowBy(t, 5), from: 9, want: reject},
		"another's cell":                  {data: rowBy(t, 6), from: 1, want: ignore, pulled: true},
		"another's cell among its own":    {data: rowBy(t, 5, 6), from: 1, want: ignore, pulled: true},
		"another's cell, again":           {data: rowBy(t, 6), from: 1, want: reject, blamed: offenceWriter, before: func(m *Mesh, p peer.ID) { m.authors.doubt(p) }},
		"of one whose hello has not come": {data: rowBy(t, 5), from: 1, want: ignore, any: true, before: func(m *Mesh, p peer.ID) { m.authors.forget(p) }},
		"no rows":                         {data: []byte("nonsense"), from: 1, want: reject, blamed: offenceFrame},
		"nothing":                         {data: nil, from: 1, want: reject, blamed: offenceFrame},
		"too large":                       {data: make([]byte, maxGossipWire+1), from: 1, want: reject, blamed: offenceFrame},
		"too much":                        {data: rowBy(t, 5), from: 1, want: ignore, blamed: offenceGossipFlood, pulled: true, before: func(m *Mesh, p peer.ID) { m.warden.of(p).messages = bucket{used: gossipMessages.burst, at: m.now()} }},
		"while this box was away":         {data: rowBy(t, 5), from: 1, want: ignore, before: func(m *Mesh, p peer.ID) { m.absence.now.Store(tooLong) }},
		"by one that was away":            {data: rowBy(t, 5), from: 1, want: ignore, before: func(m *Mesh, p peer.ID) { m.absence.heard(p, hello{Away: alone}) }},
		"by one that went on":             {data: rowBy(t, 5), from: 1, want: accept, before: func(m *Mesh, p peer.ID) { m.absence.heard(p, hello{Away: wentOn}) }},
	} {
		t.Run(name, func(t *testing.T) {
			m := bareMesh(t, "a", withFixedClock(&fixedClock{}))
			p := m.adds(t, 1, RoleMember)
			m.authors.learn(p, 5)
			if c.before != nil {
				c.before(m, p)
			}
			from := m.self
			if c.from != 0 {
				from = peerOf(t, c.from)
			}
			msg := published(from, c.data)
			if got := bareGossip(m).validate(t.Context(), p, msg); got != c.want {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
			if (msg.ValidatorData != nil) != (c.want == accept && from != m.self) {
				t.Errorf("%s: read as %v", name, msg.ValidatorData)
			}
			if got := m.puller.wants(p); got != c.pulled {
				t.Errorf("%s: pulled from the author: %v", name, got)
			}
			if got := m.puller.wantsAny(); got != c.any {
				t.Errorf("%s: pulled from somebody: %v", name, got)
			}
			blamed := m.alarmsOf(AlarmMisbehaving)
			if (len(blamed) == 1) != (c.blamed != "") || c.blamed != "" && blamed[0] != p.String()+" "+offenceWords[c.blamed] {
				t.Errorf("%s: blamed %q, want for %q", name, blamed, c.blamed)
			}
		})
	}
}

// TestWhatSignalsAreTaken, those about spending among them.
func TestWhatSignalsAreTaken(t *testing.T) {
	money := func(m crdt.Money) []byte {
		raw, err := crdt.EncodeMoney(m)
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{byte(SignalSpend)}, raw...)
	}
	spent := func(by crdt.ReplicaID) crdt.Money {
		return crdt.Money{Escrows: []crdt.EscrowPart{{Account: budget, Cells: []crdt.EscrowEntry{{From: by, To: crdt.Spent, Micros: 3}}}}}
	}
	folded := spent(5)
	folded.Folds = []crdt.SpendFold{{Account: budget}}
	for name, c := range map[string]struct {
		data   []byte
		from   byte
		want   pubsub.ValidationResult
		blamed string
	}{
		"a decision":           {append([]byte{byte(SignalWarm)}, "x"...), 1, accept, ""},
		"of a later kind":      {[]byte{250}, 1, accept, ""}, // passed on to those that know it
		"kind 0":               {[]byte{0}, 1, accept, ""},
		"nothing":              {nil, 1, reject, offenceFrame},
		"too large":            {make([]byte, maxGossipWire+1), 1, reject, offenceFrame},
		"a stranger's":         {[]byte{1}, 9, reject, ""},
		"this box's own":       {nil, 0, accept, ""},
		"its own spending":     {money(spent(5)), 1, accept, ""},
		"spending of no bytes": {[]byte{byte(SignalSpend)}, 1, reject, offenceFrame},
		"spending of nonsense": {append([]byte{byte(SignalSpend)}, 0xff), 1, reject, offenceFrame},
		"folded counts":        {money(folded), 1, reject, offenceFrame},
	} {
		t.Run(name, func(t *testing.T) {
			m := bareMesh(t, "a", withFixedClock(&fixedClock{}))
			m.signals = &signals{m: m}
			p := m.adds(t, 1, RoleMember)
			m.authors.learn(p, 5)
			from := m.self
			if c.from != 0 {
				from = peerOf(t, c.from)
			}
			if got := m.signals.validate(t.Context(), p, published(from, c.data)); got != c.want {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
			blamed := m.alarmsOf(AlarmMisbehaving)
			if (len(blamed) == 1) != (c.blamed != "") || c.blamed != "" && blamed[0] != p.String()+" "+offenceWords[c.blamed] {
				t.Errorf("%s: blamed %q", name, blamed)
			}
		})
	}
	// Another's counts: forgiven once, since its store may have a new identity.
	m := bareMesh(t, "a")
	m.signals = &signals{m: m}
	p := m.adds(t, 1, RoleMember)
	m.authors.learn(p, 5)
	for i, want := range []pubsub.ValidationResult{ignore, reject} {
		if got := m.signals.validate(t.Context(), p, published(p, money(spent(6)))); got != want {
			t.Errorf("the %d. time: %v", i+1, got)
		}
	}
	if !m.puller.wants(p) {
		t.Error("its new identity is not asked for")
	}
}

// TestAllCellsHaveOneWriter: one cell of another is enough.
func TestAllCellsHaveOneWriter(t *testing.T) {
	own := crdt.Money{
		Spend:   []crdt.SpendEntry{{Account: budget, By: crdt.SpendID{Store: 5}, Micros: 1}},
		Escrows: []crdt.EscrowPart{{Account: budget, Cells: []crdt.EscrowEntry{{From: 5, To: 6, Micros: 1}}}},
	}
	if !writtenAllBy(own, 5) || writtenAllBy(own, 6) || !writtenAllBy(crdt.Money{}, 5) {
		t.Error("the writer's own cells")
	}
	spend := own
	spend.Spend = append(spend.Spend, crdt.SpendEntry{Account: budget, By: crdt.SpendID{Store: 6}})
	escrow := own
	escrow.Escrows = append(escrow.Escrows, crdt.EscrowPart{Account: budget, Cells: []crdt.EscrowEntry{{From: 6, To: 5, Micros: 1}}})
	if writtenAllBy(spend, 5) || writtenAllBy(escrow, 5) {
		t.Error("a cell of another among them is taken")
	}
}

// TestHeardSpendingIsBounded: what cannot wait is pulled, and what is of a mesh that was
// left is dropped.
func TestHeardSpendingIsBounded(t *testing.T) {
	m := bareMesh(t, "a")
	p := m.adds(t, 1, RoleMember)
	y := m.money
	generation := y.generation
	part := crdt.Money{Spend: make([]crdt.SpendEntry, maxHeard/2)}
	y.take(p, generation, part)
	y.take(p, generation, part)
	if y.cells != maxHeard || m.puller.wants(p) {
		t.Errorf("%d cells wait", y.cells)
	}
	y.take(p, generation, crdt.Money{Spend: make([]crdt.SpendEntry, 1)})
	if y.cells != maxHeard || !m.puller.wants(p) {
		t.Errorf("%d cells wait, and the rest is not pulled", y.cells)
	}
	y.follow(&view{generation: generation + 1})
	if y.cells != 0 || len(y.waiting) != 0 {
		t.Error("counts of the former mesh wait for the new one")
	}
	y.take(p, generation, crdt.Money{Spend: make([]crdt.SpendEntry, 1)})
	if y.cells != 0 {
		t.Error("counts that were heard in the former mesh are taken")
	}
	// One write to the disk for all that waits, under the generation in which it came.
	y.follow(m.view.Load())
	cell := crdt.SpendEntry{Account: budget, By: crdt.SpendID{Store: 77, Generation: 1}, Micros: 9}
	y.take(p, y.generation, crdt.Money{Spend: []crdt.SpendEntry{cell}})
	y.merge()
	if got := m.store.Spent(budget); got != 9 || y.cells != 0 {
		t.Errorf("%d spent, %d wait", got, y.cells)
	}
}

// TestFirstWriteOfAMember waits for a word of a peer, and of one that is alone for nobody.
func TestFirstWriteOfAMember(t *testing.T) {
	m := bareMesh(t, "a")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := m.AwaitMoney(ctx); err != nil || !m.money.known() {
		t.Errorf("alone: %v", err)
	}
	if _, all := m.MoneyFrom(); !all {
		t.Error("alone, and counts of others are missing")
	}
	p := m.adds(t, 1, RoleMember)
	if err := m.AwaitMoney(ctx); !errors.Is(err, context.Canceled) || m.money.known() {
		t.Errorf("with a peer that said nothing: %v", err)
	}
	if _, all := m.MoneyFrom(); all {
		t.Error("it has counts that nobody told")
	}
	waits := make(chan error, 1)
	go func() { waits <- m.AwaitMoney(t.Context()) }()
	before := m.now()
	m.money.keep(m.money.generation+1, p, m.money.cursor(p)) // of another mesh: says nothing
	if m.money.known() {
		t.Error("a word of another mesh counts")
	}
	m.money.keep(m.money.generation, p, m.money.cursor(p))
	if err := <-waits; err != nil || !m.money.known() {
		t.Errorf("after a word of it: %v", err)
	}
	if at, all := m.MoneyFrom(); !all || at.Before(before) || at.After(m.now()) {
		t.Errorf("counts since %s, all %v", at, all)
	}
	m.money.begin(m.money.generation + 1)
	if m.money.known() {
		t.Error("in a new mesh what was told in the old one counts")
	}
}

// TestLossesAreSeen: those of pubsub's own queues are pulled, and forged messages blamed
// on who passed them on.
func TestLossesAreSeen(t *testing.T) {
	m := bareMesh(t, "a")
	p, far := m.adds(t, 1, RoleMember), m.adds(t, 2, RoleMember)
	tr := dropTracer{m: m}
	msg := published(far, nil)
	msg.ReceivedFrom = p
	for name, lose := range map[string]func(){
		"an outbound queue":      func() { tr.DropRPC(nil, p) },
		"the subscription":       func() { tr.UndeliverableMessage(msg) },
		"the validation's queue": func() { tr.RejectMessage(msg, pubsub.RejectValidationQueueFull) },
		"validation, throttled":  func() { tr.RejectMessage(msg, pubsub.RejectValidationThrottled) },
	} {
		lose()
		if !m.puller.wantsAny() || len(m.alarmsOf(AlarmGossipLoss)) != 1 {
			t.Errorf("%s: not pulled, or not shown", name)
		}
	}
	for _, why := range []string{pubsub.RejectValidationFailed, pubsub.RejectValidationIgnored, pubsub.RejectBlacklstedPeer} {
		tr.RejectMessage(msg, why)
	}
	if m.puller.wantsAny() || len(m.alarmsOf(AlarmMisbehaving)) != 0 {
		t.Error("what was refused on purpose is taken for a loss or an offence")
	}
	tr.RejectMessage(msg, pubsub.RejectInvalidSignature)
	if got := m.alarmsOf(AlarmMisbehaving); len(got) != 1 || got[0] != p.String()+" "+offenceWords[offenceSignature] {
		t.Errorf("%q", got)
	}
}

// TestWritesAreGathered: of one row all cells that wait go out as one.
func TestWritesAreGathered(t *testing.T) {
	m := bareMesh(t, "a")
	g := bareGossip(m)
	for _, by := range []crdt.ReplicaID{5, 6} {
		items, err := crdt.DecodeItems(rowBy(t, by))
		if err != nil {
			t.Fatal(err)
		}
		items[0].Row.Cells["only "+string(rune('0'+by))] = crdt.Cell{At: crdt.HLC(by), By: by, Value: bytes.Repeat([]byte{1}, int(by))}
		g.wrote(items)
	}
	row := g.pending[crdt.NewKey("things", "t")]
	if len(g.pending) != 1 || len(row.Cells) != 3 || row.Cells["a"].By != 6 || len(g.wake) != 1 {
		t.Errorf("%+v", g.pending)
	}
}

// TestPullsAreAskedForOnce: however often, and one that runs is waited for.
func TestPullsAreAskedForOnce(t *testing.T) {
	m := bareMesh(t, "a")
	p, q := m.adds(t, 1, RoleMember), m.adds(t, 2, RoleMember)
	m.speaksTo(p, 1)
	u := m.puller
	for range 5 {
		u.request(p)
	}
	u.requestAny()
	if got := u.take(); len(got) != 1 || got[0] != p {
		t.Errorf("pulls from %v", got)
	}
	u.request(p)
	u.request(q)
	if got := u.take(); len(got) != 1 || got[0] != q {
		t.Errorf("while one runs: pulls from %v", got)
	}
	u.requestAll() // of those that are live
	if !u.wants(p) || u.wants(q) {
		t.Error("not all that are live are asked, or others")
	}
	done, err := u.turn(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := u.turn(ctx, p); !errors.Is(err, context.Canceled) {
		t.Errorf("two pulls at once: %v", err)
	}
	if free, err := u.turn(ctx, q); err == nil {
		free()
	} else if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	done()
	if next, err := u.turn(t.Context(), p); err != nil {
		t.Error(err)
	} else {
		next()
	}
	for range 1000 {
		if pause := pullPause(); pause < pullLeast || pause >= pullMost {
			t.Fatalf("a pause of %s", pause)
		}
	}
}
