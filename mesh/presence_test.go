package mesh

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	ma "github.com/multiformats/go-multiaddr"

	"llmgw/mesh/catalog"
)

func ptr[T any](v T) *T { return &v }

func presenceOf(from, of *box) catalog.Presence {
	for _, n := range from.mesh.Nodes() {
		if n.ID == of.id() {
			return n.Presence
		}
	}
	return catalog.Presence{}
}

func TestPresenceSpreads(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	a.mesh.SetPresence(catalog.Presence{API: []string{"192.0.2.1:8770"}})
	b.join(a)
	allLive(t, a, b)
	// What was set before they met is there as soon as they have.
	eventually(t, "b has a's presence", func() bool { return len(presenceOf(b, a).API) == 1 })
	first := presenceOf(b, a)
	if first.Peer != a.id() || first.Boot != a.mesh.Boot() || first.Name != "a" || first.Version != "test" || len(first.Addresses) == 0 {
		t.Errorf("presence %+v", first)
	}

	w := b.mesh.Changes()
	defer w.Close()
	replica := catalog.ReplicaStatus{Model: "m", State: catalog.ReplicaReady, Slots: 4}
	a.mesh.SetPresence(catalog.Presence{Replicas: []catalog.ReplicaStatus{replica}})
	eventually(t, "b sees the replica", func() bool {
		got, ok := presenceOf(b, a).Replica("m", 0)
		return ok && cmp.Equal(got, replica)
	})
	select {
	case <-w.C:
	case <-time.After(patience):
		t.Error("no notice of the change")
	}

	// A daemon that starts again counts as newer, whatever its sequence is.
	a.kill()
	a.start()
	a.mesh.SetPresence(catalog.Presence{Stopping: true})
	eventually(t, "b sees the new boot", func() bool {
		p := presenceOf(b, a)
		return p.Stopping && p.Boot > first.Boot
	})
}

func TestSmallMovesAreNoNews(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	base := func() catalog.Presence {
		return catalog.Presence{
			DiskFree: ptr(int64(100 << 30)),
			Inventory: catalog.Inventory{RAMTotal: ptr(int64(64 << 30)), RAMFree: ptr(int64(32<<30 + 1<<29)), Devices: []catalog.Device{
				{ID: "cpu", MemoryTotal: ptr(int64(64 << 30)), MemoryFree: ptr(int64(33 << 30)), BusyPercent: ptr(10.0), Celsius: ptr(50.5)},
			}},
		}
	}
	a.mesh.SetPresence(base())
	_, before := a.mesh.presence.current()
	cases := map[string]struct {
		change func(*catalog.Presence)
		news   bool
	}{
		"nothing":          {func(*catalog.Presence) {}, false},
		"RAM by a MiB":     {func(p *catalog.Presence) { *p.Inventory.RAMFree += 1 << 20 }, false},
		"RAM by half":      {func(p *catalog.Presence) { *p.Inventory.RAMFree /= 2 }, true},
		"RAM unknown":      {func(p *catalog.Presence) { p.Inventory.RAMFree = nil }, true},
		"a degree":         {func(p *catalog.Presence) { *p.Inventory.Devices[0].Celsius += 0.5 }, false},
		"thirty degrees":   {func(p *catalog.Presence) { *p.Inventory.Devices[0].Celsius += 30 }, true},
		"busier by one":    {func(p *catalog.Presence) { *p.Inventory.Devices[0].BusyPercent++ }, false},
		"disk by a MiB":    {func(p *catalog.Presence) { *p.DiskFree += 1 << 20 }, false},
		"disk by 10 GiB":   {func(p *catalog.Presence) { *p.DiskFree -= 10 << 30 }, true},
		"weights":          {func(p *catalog.Presence) { p.Weights = []string{"sha256:x"} }, true},
		"a replica's load": {func(p *catalog.Presence) { p.Replicas = []catalog.ReplicaStatus{{Model: "m", InFlight: 1}} }, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a.mesh.SetPresence(base())
			_, before = a.mesh.presence.current()
			p := base()
			c.change(&p)
			a.mesh.SetPresence(p)
			got, after := a.mesh.presence.current()
			if (after != before) != c.news {
				t.Errorf("announced: %v, want %v", after != before, c.news)
			}
			// The box itself always shows what was measured last.
			if !cmp.Equal(got.Inventory, p.Inventory) || !cmp.Equal(got.DiskFree, p.DiskFree) {
				t.Error("the measured values were rounded")
			}
		})
	}
}

func TestPresenceDue(t *testing.T) {
	t.Parallel()
	sent := time.Unix(1000, 0)
	if got := due(sent, 1, 2).Sub(sent); got != presenceGap {
		t.Errorf("news after %s", got)
	}
	if got := due(sent, 2, 2).Sub(sent); got != presenceFull {
		t.Errorf("repeat after %s", got)
	}
}

func TestNewerPresence(t *testing.T) {
	t.Parallel()
	p := func(boot, sequence uint64) catalog.Presence { return catalog.Presence{Boot: boot, Sequence: sequence} }
	cases := map[string]struct {
		a, b catalog.Presence
		want bool
	}{
		"later":                {p(1, 1), p(1, 2), true},
		"same":                 {p(1, 2), p(1, 2), false},
		"earlier":              {p(1, 2), p(1, 1), false},
		"new boot, low number": {p(1, 9), p(2, 1), true},
		"old boot, late":       {p(2, 1), p(1, 9), false},
	}
	for name, c := range cases {
		if got := newer(c.a, c.b); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWatchCoalescesAndNeverBlocks(t *testing.T) {
	t.Parallel()
	var n notifier
	w := n.watch()
	for range 100 {
		n.notify()
	}
	<-w.C
	select {
	case <-w.C:
		t.Error("two notices for one batch")
	default:
	}
	w.Close()
	w.Close()
	n.notify()
	select {
	case <-w.C:
		t.Error("a notice after Close")
	default:
	}
}

func TestPathShowsWhereThePeerListens(t *testing.T) {
	addrs := func(texts ...string) []ma.Multiaddr { return multiaddrs(texts) }
	announced := addrs("/ip4/10.0.0.2/tcp/8771", "/ip4/192.0.2.2/tcp/9000", "/ip6/fd00::2/tcp/8771", "/dns4/box.example/tcp/1")
	for remote, want := range map[string]string{
		"/ip4/192.0.2.2/tcp/50111": "192.0.2.2:9000",
		"/ip6/fd00::2/tcp/50111":   "[fd00::2]:8771",
		"/ip4/203.0.113.9/tcp/99":  "203.0.113.9", // behind a gateway
	} {
		if got := listening(ma.StringCast(remote), announced); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
	t.Run("boxes", func(t *testing.T) {
		a, b := newBox(t, "a"), newBox(t, "b")
		b.join(a)
		allLive(t, a, b)
		for _, x := range []*box{a, b} {
			for _, n := range x.mesh.Nodes() {
				other := map[string]*box{a.id(): a, b.id(): b}[n.ID]
				if other != x && n.Path != other.addr() {
					t.Errorf("%s sees %s at %s, want %s", x.cfg.Name, n.Name, n.Path, other.addr())
				}
			}
		}
	})
}
