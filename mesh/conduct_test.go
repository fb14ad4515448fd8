package mesh

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"llmgw/mesh/token"
)

// fixedClock is a clock that stands until a test moves it.
type fixedClock struct{ at time.Time }

func (c *fixedClock) now() time.Time { return c.at }

func withFixedClock(c *fixedClock) func(*Config) {
	c.at = time.Unix(1_800_000_000, 0)
	return func(cfg *Config) { cfg.Now = c.now }
}

// TestBucketLaws: in no stretch of time more is taken than the burst and what grows in it,
// and who stays below the rate is never refused, whatever the clock does.
func TestBucketLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := allowance{rate: float64(rapid.IntRange(1, 50).Draw(rt, "rate")), burst: float64(rapid.IntRange(1, 100).Draw(rt, "burst"))}
		var b bucket
		now, passed, taken := time.Unix(1000, 0), 0.0, 0.0
		for range rapid.IntRange(1, 200).Draw(rt, "takes") {
			step := time.Duration(rapid.IntRange(-3000, 3000).Draw(rt, "ms")) * time.Millisecond
			now = now.Add(step)
			passed += max(step.Seconds(), 0)
			n := float64(rapid.IntRange(0, int(a.burst)).Draw(rt, "tokens"))
			if b.take(now, a, n) {
				taken += n
			}
			if b.used < 0 || b.used > a.burst {
				rt.Fatalf("%f used of %f", b.used, a.burst)
			}
			if taken > a.burst+passed*a.rate+1e-6 {
				rt.Fatalf("%f taken in %f s", taken, passed)
			}
		}
		// Whatever was before: once it was quiet, one at the rate gets all.
		now = now.Add(time.Duration(a.burst/a.rate*float64(time.Second)) + time.Second)
		for range 3 * int(a.burst) {
			now = now.Add(time.Duration(float64(time.Second)/a.rate) + time.Microsecond)
			if !b.take(now, a, 1) {
				rt.Fatal("one that keeps to the rate is refused")
			}
		}
	})
}

// TestClockSetBackPunishesNobody: what keeps to its allowance is taken after the clock of
// this box was set back, however far.
func TestClockSetBackPunishesNobody(t *testing.T) {
	clock := &fixedClock{}
	m := bareMesh(t, "a", withFixedClock(clock))
	p := m.adds(t, 1, RoleMember)
	for second := range 300 {
		clock.at = clock.at.Add(time.Second)
		if second == 60 {
			clock.at = clock.at.Add(-time.Hour)
		}
		if err := m.warden.beat(p); err != nil {
			t.Fatalf("heartbeat %d: %v", second, err)
		}
		done, err := m.warden.stream(p, protocolSync)
		if err != nil {
			t.Fatalf("pull %d: %v", second, err)
		}
		done()
		if !m.warden.gossip(p, 1000) || !m.warden.signal(p, 1000) {
			t.Fatalf("message %d is dropped", second)
		}
	}
	if alarms := m.alarmsOf(AlarmMisbehaving); len(alarms) > 0 {
		t.Errorf("%v", alarms)
	}
}

// TestHonestTrafficIsNeverAnOffence: the most that a well-behaved box sends, by what this
// package itself does, for ten minutes.
func TestHonestTrafficIsNeverAnOffence(t *testing.T) {
	clock := &fixedClock{}
	m := bareMesh(t, "a", withFixedClock(clock))
	p := m.adds(t, 1, RoleMember)
	batches := int(time.Second / gossipBatch)
	for second := range 600 {
		clock.at = clock.at.Add(time.Second)
		for range batches {
			if !m.warden.gossip(p, 40<<10) {
				t.Fatalf("gossip is dropped in second %d", second)
			}
		}
		for range 2 * int(time.Second/tellEach) {
			if !m.warden.signal(p, 8<<10) {
				t.Fatalf("a signal is dropped in second %d", second)
			}
		}
		for range 2 { // a pulse and a presence
			if err := m.warden.beat(p); err != nil {
				t.Fatalf("second %d: %v", second, err)
			}
		}
		for proto, n := range map[string]int{protocolSync: 4, protocolHeartbeat: 3, protocolEscrow: 2, protocolVerdict: 1} {
			for range n {
				done, err := m.warden.stream(p, proto)
				if err != nil {
					t.Fatalf("second %d: %v", second, err)
				}
				done()
			}
		}
	}
	// A link that was held up for as long as a reader waits delivers all at once.
	for i := range 2 * int((deadAfter+suspectAfter)/heartbeatEach) {
		if err := m.warden.beat(p); err != nil {
			t.Fatalf("late heartbeat %d: %v", i, err)
		}
	}
	if alarms := m.alarmsOf(AlarmMisbehaving); len(alarms) > 0 {
		t.Errorf("%v", alarms)
	}
}

// TestFloodsAreStopped: of whatever kind, soon, for that peer alone, and named once.
func TestFloodsAreStopped(t *testing.T) {
	for name, c := range map[string]struct {
		once  func(m *Mesh) bool // whether it is taken
		other func(m *Mesh) bool // the same of another peer
		most  int                // taken at one moment
		kind  string             // empty: no offence
	}{
		"gossip":            {func(m *Mesh) bool { return m.warden.gossip(peerSeven(m), 10) }, func(m *Mesh) bool { return m.warden.gossip(peerEight(m), 10) }, 1000, offenceGossipFlood},
		"gossip, large":     {func(m *Mesh) bool { return m.warden.gossip(peerSeven(m), maxGossipWire) }, func(m *Mesh) bool { return m.warden.gossip(peerEight(m), maxGossipWire) }, 1000, offenceGossipFlood},
		"signals":           {func(m *Mesh) bool { return m.warden.signal(peerSeven(m), 10) }, func(m *Mesh) bool { return m.warden.signal(peerEight(m), 10) }, 1000, ""},
		"signals, large":    {func(m *Mesh) bool { return m.warden.signal(peerSeven(m), MaxSignal) }, func(m *Mesh) bool { return m.warden.signal(peerEight(m), MaxSignal) }, 273, ""},
		"heartbeats":        {func(m *Mesh) bool { return m.warden.beat(peerSeven(m)) == nil }, func(m *Mesh) bool { return m.warden.beat(peerEight(m)) == nil }, 60, offenceBeatFlood},
		"heartbeat streams": {streamOf(protocolHeartbeat, peerSeven), streamOf(protocolHeartbeat, peerEight), 100, offenceStreamFlood},
		"diagnoses":         {streamOf(protocolDoctor, peerSeven), streamOf(protocolDoctor, peerEight), 5, offenceStreamFlood},
		"questions":         {streamOf(protocolEscrow, peerSeven), streamOf(protocolEscrow, peerEight), 200, offenceStreamFlood},
		"verdicts":          {streamOf(protocolVerdict, peerSeven), streamOf(protocolVerdict, peerEight), guestBurst, offenceStreamFlood},
		"syncs at once":     {streamOf(protocolSync, peerSeven), streamOf(protocolSync, peerEight), syncAtOnce, offenceStreamFlood},
	} {
		t.Run(name, func(t *testing.T) {
			m := bareMesh(t, "a", withFixedClock(&fixedClock{}))
			m.adds(t, 7, RoleMember)
			m.adds(t, 8, RoleMember)
			taken := 0
			for range 2000 {
				if c.once(m) {
					taken++
				}
			}
			if taken != c.most {
				t.Errorf("%s: %d of 2000 taken, want %d", name, taken, c.most)
			}
			if !c.other(m) {
				t.Errorf("%s: another peer pays for it", name)
			}
			alarms := m.alarmsOf(AlarmMisbehaving)
			if c.kind == "" {
				if len(alarms) > 0 {
					t.Errorf("%s: %v", name, alarms)
				}
				return
			}
			want := fmt.Sprintf("%s %s (%d times)", peerSeven(m), offenceWords[c.kind], 2000-taken)
			if len(alarms) != 1 || alarms[0] != want {
				t.Errorf("%s: %q, want %q", name, alarms, want)
			}
			if got := offencesOf(t, m, c.kind); got != float64(2000-taken) {
				t.Errorf("%s: %v counted", name, got)
			}
		})
	}
}

// offencesOf reads a counter as whoever scrapes it does.
func offencesOf(t *testing.T, m *Mesh, kind string) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	if err := reg.Register(m.counts.offences); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			if metric.GetLabel()[0].GetValue() == kind {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// The flooder, another member, and a stream that one of them opens.
func peerSeven(m *Mesh) peer.ID { return memberBySeed(m, 7) }
func peerEight(m *Mesh) peer.ID { return memberBySeed(m, 8) }

func memberBySeed(m *Mesh, seed byte) peer.ID {
	id, err := seedPeer(token.Seed{Key: seedKey(seed).Public().(ed25519.PublicKey)})
	if err != nil || !m.view.Load().roster.active(id) {
		panic("no such member")
	}
	return id
}

func streamOf(proto string, by func(*Mesh) peer.ID) func(*Mesh) bool {
	return func(m *Mesh) bool { _, err := m.warden.stream(by(m), proto); return err == nil }
}

// TestSyncsMakeRoom: one that ends lets the next in.
func TestSyncsMakeRoom(t *testing.T) {
	m := bareMesh(t, "a", withFixedClock(&fixedClock{}))
	p := m.adds(t, 7, RoleMember)
	var ends []func()
	for range syncAtOnce {
		done, err := m.warden.stream(p, protocolSync)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, done)
	}
	_, err := m.warden.stream(p, protocolSync)
	if !errors.Is(err, errFlood) || !strings.Contains(err.Error(), protocolSync+" of "+p.String()) {
		t.Errorf("one too many: %v", err)
	}
	ends[0]()
	if done, err := m.warden.stream(p, protocolSync); err != nil {
		t.Errorf("after one ended: %v", err)
	} else {
		done()
	}
	m.warden.forget(p)
	for _, done := range ends[1:] {
		done() // of a record that is gone
	}
	if c := m.warden.of(p); c.syncs != 0 {
		t.Errorf("%d syncs of nobody", c.syncs)
	}
}

// TestMutedForAWhile: who is dropped long enough in a row is not even read, and then again.
func TestMutedForAWhile(t *testing.T) {
	clock := &fixedClock{}
	m := bareMesh(t, "a", withFixedClock(clock))
	p := m.adds(t, 7, RoleMember)
	muted := func() bool { return rosterBlacklist{m}.Contains(p) }
	for range int(gossipMessages.burst) + muteAfter - 1 {
		m.warden.gossip(p, 1)
	}
	if muted() {
		t.Error("muted one message too soon")
	}
	m.warden.gossip(p, 1)
	if !muted() {
		t.Error("not muted")
	}
	clock.at = clock.at.Add(muteFor - time.Millisecond)
	if !muted() {
		t.Error("speaks too soon")
	}
	clock.at = clock.at.Add(time.Millisecond)
	if muted() || !m.warden.gossip(p, 1) {
		t.Error("muted for ever")
	}
	// One that is taken now and then is never muted.
	for range 4 * muteAfter {
		clock.at = clock.at.Add(time.Second / 40)
		m.warden.gossip(p, 1)
		if muted() {
			t.Fatal("muted although messages of it are taken")
		}
	}
	if (rosterBlacklist{m}).Contains(m.self) || !(rosterBlacklist{m}).Contains(peerOf(t, 99)) {
		t.Error("this box itself is shut out, or a stranger is not")
	}
}

// TestStrangersHaveNoRecord: what they do is counted, names nobody and takes no memory.
func TestStrangersHaveNoRecord(t *testing.T) {
	m := bareMesh(t, "a")
	for i := range 50 {
		p := peerOf(t, byte(i))
		if _, err := m.warden.stream(p, protocolSync); err != nil {
			t.Fatal(err) // the handler refuses it for what it is
		}
		m.warden.blame(p, fmt.Errorf("read: %w", errFrame))
		if m.warden.muted(p) {
			t.Error("a stranger is muted")
		}
	}
	if len(m.warden.peers) != 0 || len(m.alarmsOf(AlarmMisbehaving)) != 0 {
		t.Errorf("%d records, alarms %v", len(m.warden.peers), m.alarmsOf(AlarmMisbehaving))
	}
	if got := offencesOf(t, m, offenceFrame); got != 50 {
		t.Errorf("%v counted", got)
	}
}

// TestRemovedBoxesAreLimitedToo: they may speak of their removal, and not without end.
func TestRemovedBoxesAreLimitedToo(t *testing.T) {
	m := bareMesh(t, "a", withFixedClock(&fixedClock{}))
	p := m.adds(t, 7, RoleMember)
	if err := m.Ban(t.Context(), p.String(), ""); err != nil {
		t.Fatal(err)
	}
	taken := 0
	for range 500 {
		if _, err := m.warden.stream(p, protocolVerdict); err == nil {
			taken++
		}
	}
	if taken != guestBurst {
		t.Errorf("%d verdicts at once", taken)
	}
	if len(m.alarmsOf(AlarmMisbehaving)) != 0 {
		t.Error("one that is no member any more is named as a member that misbehaves")
	}
}

// TestBlameGoesByTheError: a peer that goes away or is slow has done nothing.
func TestBlameGoesByTheError(t *testing.T) {
	m := bareMesh(t, "a")
	p := m.adds(t, 7, RoleMember)
	for _, err := range []error{nil, io.EOF, ErrVersion, ErrNotMember, errMeshReplaced, errFlood} {
		m.warden.blame(p, err)
	}
	if got := m.alarmsOf(AlarmMisbehaving); len(got) != 0 {
		t.Errorf("%v", got)
	}
	m.warden.blame(p, fmt.Errorf("pull: %w: %w", errFrame, io.EOF))
	if got := m.alarmsOf(AlarmMisbehaving); !slices.Equal(got, []string{p.String() + " sends what no llmgw sends"}) {
		t.Errorf("%q", got)
	}
	for kind, words := range offenceWords {
		if words == "" || kind == "" {
			t.Errorf("%q has the words %q", kind, words)
		}
	}
}
