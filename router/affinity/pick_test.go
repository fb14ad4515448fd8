package affinity

import (
	"fmt"
	"testing"
	"time"
)

var start = time.Unix(1_000_000_000, 0)

func query(path ...int) Query {
	var c Chain
	for i, l := range chainOf(path...) {
		c = append(c, Link{l.Hash, uint32(i+1) * 500})
	}
	return Query{Chain: c, Tokens: c.Tokens(), Root: uint64(c[min(1, len(c)-1)].Hash)}
}

// others makes n remote replicas of one model.
func others(n int) []Candidate {
	var cs []Candidate
	for i := range n {
		cs = append(cs, Candidate{Replica: ReplicaOf(fmt.Sprint("box", i), "m", 0), Remote: true, KVTokens: 1 << 20})
	}
	return cs
}

// serve has one request answered at once, and says where.
func serve(p *Picker, q Query, cs []Candidate, now time.Time) int {
	t := p.Pick(q, cs, now)
	t.First(now)
	t.Done(now)
	return t.Index
}

func TestConversationStaysWhereItIsWarm(t *testing.T) {
	p, cs := NewPicker(1), others(8)
	first := serve(p, query(1, 2, 3), cs, start)
	for turn := 4; turn < 9; turn++ {
		q := query(1, 2, 3, 4, 5, 6, 7, 8, 9)
		q.Chain = q.Chain[:turn]
		q.Tokens = q.Chain.Tokens()
		if got := serve(p, q, cs, start); got != first {
			t.Fatalf("turn of %d blocks went to %d, its beginning is at %d", turn, got, first)
		}
	}
}

func TestColdPromptsSpread(t *testing.T) { // K1, K6: the empty index draws nobody
	p, cs := NewPicker(1), others(8)
	count := make(map[int]int)
	for i := range 800 {
		count[serve(p, query(1000+i, 1), cs, start)]++
	}
	for i := range cs {
		if count[i] < 60 || count[i] > 140 {
			t.Errorf("replica %d got %d of 800 cold prompts", i, count[i])
		}
	}
}

func TestBurstSpreadsBeforeAnythingAnswers(t *testing.T) { // K2: counted when chosen
	p, cs := NewPicker(1), others(8)
	count := make(map[int]int)
	for i := range 64 {
		count[p.Pick(query(1000+i, 1, 2, 3, 4, 5), cs, start).Index]++
	}
	for i := range cs {
		if count[i] != 8 {
			t.Errorf("replica %d got %d of a burst of 64", i, count[i])
		}
	}
}

func TestSharedPrefixMakesNoHotSpot(t *testing.T) { // K4: tokens decide, not the share of a prompt
	p, cs := NewPicker(1), others(4)
	count := make(map[int]int)
	for i := range 40 {
		count[p.Pick(query(7, 1000+i, 2, 3, 4, 5, 6, 7), cs, start).Index]++
	}
	for i := range cs {
		if count[i] < 7 || count[i] > 13 {
			t.Errorf("replica %d got %d of 40 prompts with one beginning", i, count[i])
		}
	}
}

func TestModelsDoNotShareState(t *testing.T) { // K7
	p := NewPicker(1)
	a, b := others(2), others(2)
	for i := range b {
		b[i].Replica = ReplicaOf(fmt.Sprint("box", i), "other", 0)
	}
	for range 10 {
		p.Pick(query(1, 2), a, start)
	}
	for _, c := range p.Explain(query(1, 2), b, start) {
		if c.Pending != 0 || c.InFlight != 0 || c.Warm != 0 {
			t.Errorf("another model's replica has %+v", c)
		}
	}
}

func TestLoadEndsOnce(t *testing.T) { // K3
	p, cs := NewPicker(1), others(1)
	load := func() string {
		c := p.Explain(query(9), cs, start)[0]
		return fmt.Sprint(c.Pending, " ", c.InFlight)
	}
	a, b := p.Pick(query(1, 2), cs, start), p.Pick(query(3, 4), cs, start)
	if got := load(); got != "2000 2" {
		t.Errorf("two chosen: %s", got)
	}
	a.First(start)
	a.First(start)
	if got := load(); got != "1000 2" {
		t.Errorf("one computed: %s", got)
	}
	a.Done(start)
	a.Done(start)
	a.First(start)
	if got := load(); got != "1000 1" {
		t.Errorf("one ended: %s", got)
	}
	b.Done(start)
	b.First(start)
	if got := load(); got != "0 0" || !p.Idle() {
		t.Errorf("both ended: %s", got)
	}
}

func TestWhatWasNotComputedIsNotWarm(t *testing.T) {
	p, cs := NewPicker(1), others(1)
	serve(p, query(1, 2), cs, start)
	p.Pick(query(1, 2, 3, 4), cs, start).Done(start)
	if warm := p.Explain(query(1, 2, 3, 4), cs, start)[0].Warm; warm != 1000 {
		t.Errorf("%d tokens are warm, want the 1000 of the answered request", warm)
	}
}

func TestGuards(t *testing.T) {
	cases := map[string]struct {
		change func(cs []Candidate)
		want   int
	}{
		"KV over the ceiling":       {func(cs []Candidate) { cs[0].KVUse = 0.95 }, 1},
		"KV over it at all":         {func(cs []Candidate) { cs[0].KVUse, cs[1].KVUse, cs[1].InFlight = 0.95, 0.95, 50 }, 0},
		"slots in use":              {func(cs []Candidate) { cs[0].Slots, cs[0].InFlight, cs[1].Slots = 2, 2, 2 }, 1},
		"farther away":              {func(cs []Candidate) { cs[0].Hop = time.Second }, 1},
		"lower priority":            {func(cs []Candidate) { cs[1].Priority, cs[1].InFlight = 1, 3 }, 1},
		"higher priority saturated": {func(cs []Candidate) { cs[1].Priority, cs[1].InFlight, cs[1].Slots = 1, 4, 4 }, 0},
		"lighter":                   {func(cs []Candidate) { cs[0].Weight, cs[1].Weight = 0.1, 1 }, 1},
		"this node":                 {func(cs []Candidate) { cs[1].Remote = false }, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cs := others(2)
			c.change(cs)
			p := NewPicker(1)
			if got := p.Pick(query(1, 2, 3), cs, start).Index; got != c.want {
				t.Errorf("picked %d of %+v", got, p.Explain(query(1, 2, 3), cs, start))
			}
		})
	}
	if NewPicker(1).Pick(query(1), nil, start) != nil {
		t.Error("picked one of none")
	}
}

func TestWarmthEnds(t *testing.T) {
	cs := others(1)
	warm := func(p *Picker, now time.Time) int { return p.Explain(query(1, 2), cs, now)[0].Warm }
	cases := map[string]func(p *Picker, now time.Time) time.Time{
		"after its time":    func(_ *Picker, now time.Time) time.Time { return now.Add(31 * time.Minute) },
		"a shorter time":    func(p *Picker, now time.Time) time.Time { p.Set(true, time.Minute); return now.Add(2 * time.Minute) },
		"switched off":      func(p *Picker, now time.Time) time.Time { p.Set(false, 0); return now },
		"engine restarted":  func(_ *Picker, now time.Time) time.Time { cs[0].Boot = 8; return now },
		"replica long gone": func(p *Picker, now time.Time) time.Time { p.Keep(nil, now.Add(2*time.Minute)); return now },
	}
	for name, end := range cases {
		t.Run(name, func(t *testing.T) {
			p := NewPicker(1)
			cs[0].Boot = 7
			serve(p, query(1, 2), cs, start)
			if got := warm(p, start.Add(time.Second)); got != 1000 {
				t.Fatalf("%d tokens are warm at first", got)
			}
			if got := warm(p, end(p, start)); got != 0 {
				t.Errorf("%d tokens are warm", got)
			}
		})
	}
}

func TestRemovedReplicasLeaveNothing(t *testing.T) { // K10
	p := NewPicker(1)
	for i := range 50 {
		cs := others(3)
		for k := range cs {
			cs[k].Replica = ReplicaOf("box", fmt.Sprint("adapter", i), k)
		}
		serve(p, query(i, 1, 2, 3), cs, start)
	}
	if s := p.Stats(); s.Replicas != 150 || s.Blocks != 200 {
		t.Fatalf("%d replicas, %d blocks", s.Replicas, s.Blocks)
	}
	p.Keep(nil, start.Add(2*unlistedFor))
	if s := p.Stats(); s.Replicas != 0 || s.Blocks != 0 || s.Bytes != 0 {
		t.Errorf("%d replicas, %d blocks, %d bytes are left", s.Replicas, s.Blocks, s.Bytes)
	}
}

func TestSessionSpeaksWhereBytesDoNot(t *testing.T) {
	p, cs := NewPicker(1), others(8)
	q := query(1, 2, 3, 4, 5, 6, 7, 8)
	q.Session = 77
	first := serve(p, q, cs, start)
	q = query(21, 22, 23, 24, 25, 26, 27, 28) // other bytes, same conversation
	q.Session = 77
	for _, c := range p.Explain(q, cs, start) {
		if c.Chosen != (c.Replica == cs[first].Replica) {
			t.Errorf("%+v, the session was at %d", c, first)
		}
	}
}

func TestEnginesCorrectBeliefs(t *testing.T) {
	p, cs := NewPicker(1), others(1)
	r := func() *replica { return p.replicas[cs[0].Replica] }
	serve(p, query(1, 2), cs, start)
	for range 20 {
		tk := p.Pick(query(1, 2), cs, start)
		tk.First(start)
		tk.Cached(1000, 0)
		tk.Cached(1000, 0)
		tk.Done(start)
	}
	if s := r().share; s > 0.13 || s < 0.11 {
		t.Errorf("a cache that never hits is believed %.3f of its size, want 0.9 to the 20th", s)
	}
	for range 400 {
		tk := p.Pick(query(1, 2), cs, start)
		tk.Cached(1000, 990)
		tk.Done(start)
	}
	if s := r().share; s != 1 {
		t.Errorf("a cache that hits is believed %.3f of its size", s)
	}
	if s := p.Stats(); s.Answers != 420 || s.Cached != 400*990 {
		t.Errorf("stats %+v", s)
	}
}

func TestRateIsMeasured(t *testing.T) {
	p, cs := NewPicker(1), others(2)
	for i := range 40 {
		tk := p.Pick(query(100+i, 1, 2, 3), cs[:1], start)
		tk.First(start.Add(200*time.Millisecond + tk.Cost.Hop)) // 2,000 tokens
		tk.Done(start.Add(time.Second))
	}
	costs := p.Explain(query(1), cs, start)
	if costs[0].Rate < 9900 || costs[0].Rate > 10100 || costs[1].Rate != defaultRate {
		t.Errorf("rates %.0f and %.0f tokens/s, want 10000 and the default", costs[0].Rate, costs[1].Rate)
	}
}
