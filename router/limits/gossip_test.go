package limits

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/mesh/catalog"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"
)

// pair is two heads whose messages the test carries.
func pair() (a, b *bench) {
	both := []Head{{Peer: "self"}, {Peer: "other"}}
	a = newBench()
	b = newBench(func(c *Config) { c.Self, c.Peer = crdt.Incarnation{Replica: 2, Boot: 1}, "other" })
	a.heads, b.heads = both, both
	a.keyOf(catalog.Rules{}, catalog.Rules{}, catalog.Rules{})
	b.keyOf(catalog.Rules{}, catalog.Rules{}, catalog.Rules{})
	return a, b
}

// Messages that are lost, doubled and out of order lead to the same counts once both
// have told everything.
func TestHeadsComeToTheSameCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := pair()
		k := a.keyOf(allRules(), catalog.Rules{}, catalog.Rules{})
		for i := range k.Rules.Budgets {
			k.Rules.Budgets[i].Hard = false
		}
		running := map[*bench][]*Grant{}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			x := a
			if rng.IntN(2) == 0 {
				x = b
			}
			switch rng.IntN(5) {
			case 0, 1:
				if g, err := x.admit(k, rng.Uint64N(100), rng.Uint64N(100)); err == nil {
					running[x] = append(running[x], g)
				}
			case 2:
				if n := len(running[x]); n > 0 {
					running[x][n-1].Settle(used(rng.Uint64N(200), rng.Uint64N(200)))
					running[x] = running[x][:n-1]
				}
			case 3:
				d := time.Duration(rng.IntN(20)) * time.Second
				a.pass(d)
				b.pass(d)
			case 4:
				deliver(rng, a, b)
			}
		}
		for range 2 { // the first may come before what started the repeat
			a.pass(repeatEvery + time.Second)
			b.pass(repeatEvery + time.Second)
			exchange(a, b)
		}
		for _, metric := range catalog.Metrics() {
			name := crdt.Meter{Limit: LevelKey, Subject: "k", Metric: string(metric)}
			x, y := a.read(a.meter(name), a.now()), b.read(b.meter(name), b.now())
			if x.taken != y.taken {
				t.Fatalf("%s: one head counts %v, the other %v", metric, x.taken, y.taken)
			}
		}
		for _, x := range []*bench{a, b} {
			for _, g := range running[x] {
				g.Release()
			}
			x.Close()
		}
	})
}

// deliver carries some of the messages, some of them twice.
func deliver(rng *rand.Rand, a, b *bench) {
	for _, way := range []struct {
		from *bench
		name string
		to   *bench
	}{{a, "self", b}, {b, "other", a}} {
		for _, i := range rng.Perm(len(way.from.told)) {
			if rng.IntN(3) > 0 {
				way.to.TakeSignal(way.name, way.from.told[i])
			}
		}
		if rng.IntN(2) == 0 {
			way.from.told = nil
		}
	}
}

func exchange(a, b *bench) {
	for _, msg := range a.told {
		b.TakeSignal("self", msg)
	}
	for _, msg := range b.told {
		a.TakeSignal("other", msg)
	}
}

func TestAHeadThatStartsIsToldWhatWasCounted(t *testing.T) {
	a, b := pair()
	k := a.keyOf(limited(catalog.MetricRequests, 4), catalog.Rules{}, catalog.Rules{})
	a.must(t, k, 0, 0)
	b.must(t, k, 0, 0).Settle(used(0, 0))
	b.Tick(b.now())
	exchange(a, b)
	var snapshot bytes.Buffer
	if err := a.Snapshot(&snapshot); err != nil {
		t.Fatal(err)
	}
	third := newBench(func(c *Config) { c.Self, c.Peer = crdt.Incarnation{Replica: 3, Boot: 1}, "third" })
	third.keyOf(catalog.Rules{}, catalog.Rules{}, catalog.Rules{})
	if err := third.TakeSnapshot(bytes.NewReader(snapshot.Bytes())); err != nil {
		t.Fatal(err)
	}
	m := third.meter(crdt.Meter{Limit: LevelKey, Subject: "k", Metric: "requests"})
	if got := third.read(m, third.now()).taken; got != 2 {
		t.Errorf("it counts %v requests, want 2", got)
	}
	for n := range snapshot.Len() {
		if err := third.TakeSnapshot(bytes.NewReader(snapshot.Bytes()[:n])); err == nil && n > 0 && n < firstFrame(snapshot.Bytes()) {
			t.Errorf("a snapshot cut at byte %d was taken", n)
		}
	}
}

// firstFrame is where the second frame begins: a cut there cannot be told from an end.
func firstFrame(data []byte) int { return 4 + int(data[3]) + int(data[2])<<8 }

// Nothing is said before anything is limited, of what no limit binds, and from two
// minutes after the last use on.
func TestNothingIsSaidWhileNothingIsUsed(t *testing.T) {
	b := newBench()
	b.heads = append(b.heads, Head{Peer: "other"})
	said := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		n := len(b.told)
		b.told = nil
		return n
	}
	free := b.keyOf(catalog.Rules{}, catalog.Rules{}, budget(catalog.PeriodMonth, catalog.UnitTokens, 1000))
	b.pass(time.Minute)
	b.must(t, free, 10, 10).Settle(used(10, 10))
	b.pass(time.Minute)
	if n := said(); n > 0 {
		t.Errorf("%d messages although no rate is limited", n)
	}
	g := b.must(t, b.keyOf(allRules(), catalog.Rules{}, catalog.Rules{}), 10, 10)
	b.pass(3 * time.Minute)
	if n := said(); n == 0 {
		t.Error("nothing is said of a request that runs")
	}
	g.Settle(used(10, 10))
	b.pass(2*time.Minute + time.Second)
	if n := said(); n == 0 {
		t.Error("nothing is said of a request that ended")
	}
	b.pass(10 * time.Minute)
	if n := said(); n > 0 {
		t.Errorf("%d messages although nothing was used for two minutes", n)
	}
	b.Close()
}

func TestMessagesKeepToTheirSize(t *testing.T) {
	b := newBench()
	for i := range 1000 {
		k := b.keyOf(catalog.Rules{Limits: catalog.RateLimits{catalog.MetricRequests: 1 << 40, catalog.MetricOutputTokens: 1 << 47}}, catalog.Rules{}, catalog.Rules{})
		k.ID = string(bytes.Repeat([]byte{byte('a' + i%26)}, 60)) + string(rune('a'+i/26))
		b.must(t, k, 0, 1<<40)
	}
	b.Tick(b.now())
	if len(b.told) < 5 {
		t.Errorf("%d messages for 2000 counts", len(b.told))
	}
	for _, msg := range b.told {
		if len(msg) > 60<<10 {
			t.Errorf("a message of %d bytes", len(msg))
		}
	}
}

// line connects a head with the owner of its limits.
type line struct {
	to   *bench
	from string
	cut  bool
}

func (l *line) Ask(_ context.Context, _ string, question []byte) ([]byte, error) {
	if l.cut {
		return nil, errors.New("cut")
	}
	return l.to.Answer(l.from, question)
}

// ownedBy gives a key whose owner, of self and other, is the one named.
func ownedBy(b *bench, owner string) string {
	b.heads = []Head{{Peer: "self"}, {Peer: "other"}}
	b.pass(time.Second)
	for i := 'a'; ; i++ {
		if b.Limiter.heads.owner("key:"+string(i)) == owner {
			return string(i)
		}
	}
}

func TestTheOwnerDecides(t *testing.T) {
	asks := &line{from: "other"}
	owner := newBench(func(c *Config) { c.Policy = func() Policy { return Owner } })
	asker := newBench(func(c *Config) {
		c.Self, c.Peer, c.Asker = crdt.Incarnation{Replica: 2, Boot: 1}, "other", asks
		c.Policy = owner.cfg.Policy
	})
	asks.to = owner
	k := owner.keyOf(limited(catalog.MetricRequests, 10), catalog.Rules{}, catalog.Rules{})
	k.ID, k.Project = ownedBy(owner, "self"), ""
	asker.heads = owner.heads
	asker.pass(time.Second)
	for range 6 {
		asker.must(t, k, 0, 0)
	}
	// Not a message has been exchanged: the owner knows what it let through.
	for range 4 {
		owner.must(t, k, 0, 0)
	}
	owner.refused(t, k, 0, 0, LevelKey, "requests")
	asker.refused(t, k, 0, 0, LevelKey, "requests")
	// What the asker tells of is not counted twice.
	asker.Tick(asker.now())
	for _, msg := range asker.told {
		owner.TakeSignal("other", msg)
	}
	m := owner.meter(crdt.Meter{Limit: LevelKey, Subject: k.ID, Metric: "requests"})
	if got := owner.read(m, owner.now()).taken; got != 10 {
		t.Errorf("the owner counts %v, want 10", got)
	}
	// Without its answer each head has its share.
	asks.cut = true
	owner.pass(2 * time.Minute)
	asker.pass(2 * time.Minute)
	asker.must(t, k, 0, 0)
	if s := asker.Stats(); s.Asked != 8 || s.Unanswered != 1 {
		t.Errorf("asked %d, unanswered %d; want 8 and 1", s.Asked, s.Unanswered)
	}
}

func FuzzAnswer(f *testing.F) {
	good, err := cbor.Marshal(question{Version: ownerVersion, Needs: []asked{{Level: LevelKey, Subject: "k", Metric: "tokens", Limit: 5, Amount: 3}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		b := newBench()
		answer, err := b.Answer("other", data)
		if err != nil {
			return
		}
		var r reply
		if err := cbor.Unmarshal(answer, &r); err != nil {
			t.Fatalf("an answer that cannot be read: %v", err)
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	a, _ := pair()
	if g, err := a.admit(a.keyOf(limited(catalog.MetricRequests, 5), catalog.Rules{}, catalog.Rules{}), 0, 0); err == nil {
		g.Settle(used(0, 0))
	}
	var good bytes.Buffer
	if err := a.Snapshot(&good); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Add([]byte{0, 0, 0, 1, 0x80})
	f.Fuzz(func(t *testing.T, data []byte) {
		_, b := pair()
		if err := b.TakeSnapshot(bytes.NewReader(data)); err == nil && len(data) < 5 {
			t.Error("nothing was taken for a snapshot")
		}
		b.TakeSignal("self", data)
	})
}

func FuzzRecord(f *testing.F) {
	good, err := Record{Key: "k", Model: "m"}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{recordVersion, 0xa0})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeRecord(data)
		if err != nil {
			return
		}
		again, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if same, err := DecodeRecord(again); err != nil || same != r {
			t.Fatalf("read %+v, then %+v: %v", r, same, err)
		}
	})
}

func FuzzReports(f *testing.F) {
	good, err := EncodeReports([]Report{{Of: "k", Requests: 3, Micros: 5}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) {
		reports, err := DecodeReports(data)
		if err == nil {
			Join(reports, reports)
		}
	})
}
