package mesh

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"llmgw/crdt"
)

func TestBucket(t *testing.T) {
	start := time.Unix(1000, 0)
	a := allowance{rate: 2, burst: 10}
	var b bucket
	for i := range 10 {
		if !b.take(start, a, 1) {
			t.Fatalf("token %d of the burst is missing", i)
		}
	}
	if b.take(start, a, 1) {
		t.Error("more than the burst at once")
	}
	if !b.take(start.Add(time.Second), a, 2) || b.take(start.Add(time.Second), a, 1) {
		t.Error("not two tokens a second")
	}
	if b.take(start, a, 1) {
		t.Error("a clock that was set back gives tokens")
	}
	if !b.take(start.Add(time.Hour), a, 10) || b.take(start.Add(time.Hour), a, 1) {
		t.Error("saved up more than the burst")
	}
}

// rogue does all that a hostile member can think of, until the context ends.
func rogue(ctx context.Context, t *testing.T, h, victim *box) {
	topic := func(data []byte) {
		tp, _, _ := h.mesh.gossip.topic.now()
		tp.Publish(ctx, data)
	}
	encode := func(items ...crdt.Item) []byte {
		raw, err := crdt.EncodeItems(items)
		if err != nil {
			t.Error(err)
		}
		return raw
	}
	cells := func(by crdt.ReplicaID, key string, value []byte) crdt.Item {
		return crdt.Item{Key: crdt.NewKey("things", key), Row: crdt.Row{Length: 1, Cells: map[string]crdt.Cell{"v": {At: 1 << 60, By: by, Value: value}}}}
	}
	oversize := binary.BigEndian.AppendUint32(nil, 1<<31)
	for i := 0; ctx.Err() == nil; i++ {
		topic([]byte("no items"))
		topic(encode(cells(victim.store.ID(), "theirs", []byte("forged"))))
		for j := range 50 {
			topic(encode(cells(h.store.ID(), fmt.Sprintf("junk %d %d", i, j), bytes.Repeat([]byte("x"), 4000))))
		}
		for _, proto := range []string{protocolSync, protocolHeartbeat, protocolDoctor, protocolVerdict} {
			if s, err := h.mesh.open(ctx, victim.peer(), proto); err == nil {
				s.Write(oversize)
				if i%2 == 0 {
					s.Reset() // the others are left to the victim
				}
			}
		}
	}
}

func TestHostileMemberDoesNotStopTheRest(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	a, b, h := newBox(t, "a", func(c *Config) { c.Metrics = reg }), newBox(t, "b"), newBox(t, "hostile")
	b.join(a)
	h.join(a)
	allLive(t, a, b, h)
	a.put("theirs", "true")
	// A member row that nobody may write, past its own screen.
	c := newCast(t, "x", "y")
	forged := c.record("x", "y", 1, RoleAdmin)
	if _, err := h.store.Merge([]crdt.Item{forged}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	for _, victim := range []*box{a, b} {
		go func() { rogue(ctx, t, h, victim); done <- struct{}{} }()
	}
	defer func() { stop(); <-done; <-done }()
	// All the while the two others agree, and stay live to each other.
	for i := range 20 {
		a.put(fmt.Sprint("from a ", i), "1")
		b.put(fmt.Sprint("from b ", i), "1")
	}
	eventually(t, "a and b agree", func() bool {
		for i := range 20 {
			if b.get(fmt.Sprint("from a ", i)) == "" || a.get(fmt.Sprint("from b ", i)) == "" {
				return false
			}
		}
		return a.sees(b) == StateLive && b.sees(a) == StateLive
	})
	named := func(kind string) bool {
		for _, alarm := range a.mesh.Alarms() {
			if alarm.Kind == AlarmMisbehaving && strings.HasPrefix(alarm.Text, "hostile "+offenceWords[kind]) {
				return true
			}
		}
		return false
	}
	eventually(t, "the forgeries are named", func() bool { return named(offenceWriter) })
	// Whatever the machine can send: from here on a has no patience with it left.
	a.mesh.warden.mu.Lock()
	a.mesh.warden.of(h.peer()).messages = bucket{used: gossipMessages.burst + gossipMessages.rate*patience.Seconds(), at: time.Now()}
	a.mesh.warden.mu.Unlock()
	eventually(t, "the flood is named", func() bool { return named(offenceGossipFlood) })
	stop()
	eventually(t, "it is named for all that it did", func() bool {
		a.mesh.puller.request(h.peer())
		for _, kind := range []string{offenceFrame, offenceWriter, offenceRows} {
			if !named(kind) {
				return false
			}
		}
		return true
	})
	for _, x := range []*box{a, b} {
		if x.get("theirs") != "true" {
			t.Errorf("%s believes what was forged: %q", x.cfg.Name, x.get("theirs"))
		}
		for _, alarm := range x.mesh.Alarms() {
			if alarm.Kind == AlarmMisbehaving && !strings.HasPrefix(alarm.Text, "hostile ") {
				t.Errorf("%s accuses somebody else: %s", x.cfg.Name, alarm.Text)
			}
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := 0
	for _, f := range families {
		if f.GetName() == "llmgw_mesh_offences_total" {
			counted = len(f.GetMetric())
		}
	}
	if counted < 4 {
		t.Errorf("%d kinds of offences are counted", counted)
	}
}

func TestEndlessPagesEnd(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	b.mesh.handle(protocolSync, members, func(s *stream) {
		defer s.Reset()
		var ask syncAsk
		if b.mesh.readSync(s, &ask) != nil {
			return
		}
		for b.mesh.writeSync(s, syncPage{Index: 1, More: true}) == nil {
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := a.mesh.pull(ctx, b.peer()); err == nil || ctx.Err() != nil {
		t.Errorf("the pull ended by %v, the context by %v", err, ctx.Err())
	}
	if !hasAlarm(a, AlarmMisbehaving) {
		t.Error("nobody is named")
	}
}
