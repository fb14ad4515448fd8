package mesh

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"llmgw/mesh/discovery"
)

func resultOf(checks []Check, name string) string {
	for _, c := range checks {
		if c.Name == name {
			return c.Result
		}
	}
	return ""
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	a, b, c, foreign := newBox(t, "a"), newBox(t, "b"), newBox(t, "c"), newBox(t, "foreign")
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	c.kill()
	a.kill()
	a.cfg.Peers = []string{foreign.addr(), "127.0.0.1:1", b.addr(), b.addr()}
	a.start()
	allLive(t, a, b)
	eventually(t, "the static peers were asked", func() bool {
		for _, s := range a.mesh.Sightings() {
			if s.ID == foreign.id() {
				return len(a.mesh.Sightings()) == 2
			}
		}
		return false
	})
	a.mesh.sights.mu.Lock()
	a.mesh.sights.sources["mdns"] = []discovery.Group{seenBy(foreign)}
	a.mesh.sights.mu.Unlock()
	if seen := a.mesh.Sightings(); len(seen) != 2 {
		t.Errorf("a peer given by hand and seen by mDNS is listed twice: %+v", seen)
	}
	a.mesh.lan.on.Store(true)
	found := map[string]Diagnosis{}
	for _, d := range a.mesh.Diagnose(context.Background()) {
		key := d.Name
		if key == "" {
			key = strings.Join(d.Addrs, " ")
		}
		if _, twice := found[key]; twice {
			t.Errorf("%s is diagnosed twice", key)
		}
		found[key] = d
		for _, check := range append(d.Out, d.In...) {
			if check.Text == "" {
				t.Errorf("%s: %s without words", key, check.Name)
			}
		}
	}
	if len(found) != 4 {
		t.Fatalf("diagnoses %+v", found)
	}
	good := map[string]string{
		CheckMDNS: CheckFailed, CheckTCP: CheckOK, CheckHandshake: CheckOK, CheckMesh: CheckOK, CheckVersion: CheckOK,
		CheckClock: CheckOK, CheckPath: CheckOK, CheckRoundTrip: CheckOK,
	}
	for name, want := range good {
		if got := resultOf(found["b"].Out, name); got != want {
			t.Errorf("to b: %s is %q, want %q", name, got, want)
		}
	}
	delete(good, CheckMDNS) // switched off on b
	for name, want := range good {
		if got := resultOf(found["b"].In, name); got != want {
			t.Errorf("from b: %s is %q, want %q (%s)", name, got, want, found["b"].InErr)
		}
	}
	if d := found["b"]; !d.Member || !d.Static || d.ID != b.id() {
		t.Errorf("b: %+v", d)
	}
	dead := found["c"]
	for _, name := range []string{CheckTCP, CheckMesh, CheckPath, CheckRoundTrip} {
		if got := resultOf(dead.Out, name); got != CheckFailed {
			t.Errorf("to c: %s is %q", name, got)
		}
	}
	if dead.In != nil || dead.InErr == "" {
		t.Errorf("from c: %+v", dead)
	}
	f := found["foreign"]
	if f.Member || !f.Static || f.ID != foreign.id() || resultOf(f.Out, CheckMDNS) != CheckOK || resultOf(f.Out, CheckHandshake) != CheckOK ||
		resultOf(f.Out, CheckMesh) != CheckFailed || resultOf(f.Out, CheckVersion) != CheckOK {
		t.Errorf("foreign: %+v", f)
	}
	nobody := found["127.0.0.1:1"]
	if nobody.ID != "" || resultOf(nobody.Out, CheckTCP) != CheckFailed || resultOf(nobody.Out, CheckHandshake) != CheckUnknown {
		t.Errorf("nobody: %+v", nobody)
	}
}

func TestAutoJoinOff(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{6}, 32)
	a := newBox(t, "a", withSecret(secret), func(c *Config) { c.NoAutoJoin = true })
	b := newBox(t, "b", withSecret(secret))
	a.mesh.sights.mu.Lock()
	a.mesh.sights.sources["mdns"] = []discovery.Group{seenBy(b)}
	a.mesh.sights.mu.Unlock()
	reasonAt := func(x *box, want string) func() bool {
		return func() bool {
			seen := x.mesh.Sightings()
			return len(seen) == 1 && seen[0].Name != "" && strings.Contains(seen[0].Reason, want)
		}
	}
	eventually(t, "a lists b with the reason", reasonAt(a, "discovery.auto_join"))
	// b, which has it on, asks and is refused.
	b.mesh.sights.mu.Lock()
	b.mesh.sights.sources["mdns"] = []discovery.Group{seenBy(a)}
	b.mesh.sights.mu.Unlock()
	eventually(t, "b says why", reasonAt(b, "discovery.auto_join"))
	if len(a.mesh.Nodes()) != 1 || len(b.mesh.Nodes()) != 1 {
		t.Error("they joined")
	}
	a.mesh.SetAutoJoin(true)
	allLive(t, a, b)
}

// fakeDiscoverer tells one group and notes when it runs.
type fakeDiscoverer struct{ running chan bool }

func (f fakeDiscoverer) Run(ctx context.Context, out chan<- []discovery.Group) {
	f.running <- true
	out <- []discovery.Group{{Source: "mdns", Peer: "x"}}
	<-ctx.Done()
	f.running <- false
}

func TestLANIsSwitched(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	ctx, cancel := context.WithCancel(context.Background())
	f := fakeDiscoverer{make(chan bool, 1)}
	found := make(chan []discovery.Group)
	done := make(chan struct{})
	go func() { defer close(done); a.mesh.lan.runWhile(ctx, f, found) }()
	for range 2 {
		a.mesh.SetLAN(true)
		if !<-f.running || len(<-found) != 1 {
			t.Fatal("it does not run")
		}
		a.mesh.SetLAN(false)
		if <-f.running || len(<-found) != 0 {
			t.Fatal("it runs on, or what it saw stays")
		}
	}
	cancel()
	<-done
}
