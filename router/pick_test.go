package router

import (
	"fmt"
	"testing"
)

func TestPick(t *testing.T) {
	r := newNode(t).Router
	local := Replica{Peer: "a", Local: true, InFlight: 9}
	idle, busy := Replica{Peer: "b"}, Replica{Peer: "c", InFlight: 3}
	cases := map[string]struct {
		replicas []Replica
		asked    []Replica
		want     string
	}{
		"none":             {nil, nil, ""},
		"local first":      {[]Replica{idle, local, busy}, nil, "a"},
		"fewest in flight": {[]Replica{busy, idle}, nil, "b"},
		"not asked twice":  {[]Replica{busy, idle, local}, []Replica{local, idle}, "c"},
		"all were asked":   {[]Replica{idle}, []Replica{idle}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			asked := make(map[tried]bool)
			for _, a := range c.asked {
				asked[tried{a.key(), a.Epoch}] = true
			}
			got, ok := r.pick(ModelView{Replicas: c.replicas}, asked, "k")
			if got.Peer != c.want || ok != (c.want != "") {
				t.Errorf("picked %q, %v", got.Peer, ok)
			}
		})
	}
}

func TestOwnRequestsCountBeforePresenceTellsOfThem(t *testing.T) {
	r := newNode(t).Router
	v := ModelView{Replicas: []Replica{{Peer: "b"}, {Peer: "c"}, {Peer: "d"}}}
	count := make(map[string]int)
	var ends []func()
	for range 30 {
		got, _ := r.pick(v, nil, "k")
		count[got.Peer]++
		ends = append(ends, r.load.take(got.key()))
	}
	for peer, n := range count {
		if n != 10 {
			t.Errorf("%s got %d of 30", peer, n)
		}
	}
	for _, end := range ends {
		end()
		end() // once is what counts
	}
	if len(r.load.count) != 0 {
		t.Errorf("load is %v", r.load.count)
	}
}

func TestTiesAreStableForAKeyAndSpreadOverKeys(t *testing.T) {
	r := newNode(t).Router
	forward := []Replica{{Peer: "b", Model: "m"}, {Peer: "c", Model: "m"}, {Peer: "d", Model: "m"}}
	backward := []Replica{forward[2], forward[1], forward[0]}
	count := make(map[string]int)
	for i := range 300 {
		key := fmt.Sprint("key", i)
		a, _ := r.pick(ModelView{Replicas: forward}, nil, key)
		b, _ := r.pick(ModelView{Replicas: backward}, nil, key)
		if a.Peer != b.Peer {
			t.Fatalf("%s: %s or %s by the order of the list", key, a.Peer, b.Peer)
		}
		count[a.Peer]++
	}
	for peer, n := range count {
		if n < 60 {
			t.Errorf("%s got %d of 300 keys", peer, n)
		}
	}
}
