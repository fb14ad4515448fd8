package affinity

import "testing"

func TestRoomOfEngines(t *testing.T) {
	const busy = 3
	for name, c := range map[string]struct {
		change  func(*Candidate)
		free    int
		bounded bool
	}{
		"slots and half of them in the queue": {func(*Candidate) {}, 12 - busy, true},
		"slots are not told":                  {func(c *Candidate) { c.Slots = 0 }, 0, false},
		"one slot, one in the queue":          {func(c *Candidate) { c.Slots = 1 }, 0, true},
		"the KV cache is full":                {func(c *Candidate) { c.KVUse = 0.95 }, 0, true},
		"the KV cache is nearly full":         {func(c *Candidate) { c.KVUse = 0.9 }, 12 - busy, true},
	} {
		p, cs := NewPicker(1), others(1)
		cs[0].Slots = 8
		for i := range busy {
			p.Pick(query(i), cs, start)
		}
		c.change(&cs[0])
		if free, bounded := p.Room(cs, start); free != c.free || bounded != c.bounded {
			t.Errorf("%s: %d free, bounded %v; want %d, %v", name, free, bounded, c.free, c.bounded)
		}
	}
	// What its holder told is older than that the last request ended.
	p, cs := NewPicker(1), others(1)
	cs[0].Slots, cs[0].KVUse = 8, 0.95
	if free, _ := p.Room(cs, start); free != 12 {
		t.Errorf("with a full cache and no request %d are free", free)
	}
	cs[0].InFlight = 1
	if free, _ := p.Room(cs, start); free != 0 {
		t.Errorf("with a full cache and another head's request %d are free", free)
	}
}
