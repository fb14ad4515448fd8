package keys

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"llmgw/mesh/catalog"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestModelsThatAKeyMayUse(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		names    []string
		want     bool
	}{
		{nil, []string{"anything"}, true},
		{[]string{"smollm2"}, []string{"smollm2"}, true},
		{[]string{"SmolLM2"}, []string{"smollm2"}, true},
		{[]string{"smollm2"}, []string{"smollm2-large"}, false},
		{[]string{"qwen*"}, []string{"qwen-tiny"}, true},
		{[]string{"qwen*"}, []string{"my-qwen"}, false},
		{[]string{"*qwen*"}, []string{"org/my-qwen-7b:q4"}, true},
		{[]string{"a*a"}, []string{"a"}, false},
		{[]string{"a*b*a"}, []string{"aba"}, true},
		{[]string{"*"}, []string{""}, true},
		{[]string{"org/*"}, []string{"org/model"}, true},
		{[]string{"org/*"}, []string{"organ/model"}, false},
		{[]string{"small"}, []string{"smollm2", "small"}, true}, // an alias
		{[]string{"other", "smollm2"}, []string{"smollm2"}, true},
	} {
		if got := (Info{Models: c.patterns}).AllowsModel(c.names...); got != c.want {
			t.Errorf("%v allows %v: %t, want %t", c.patterns, c.names, got, c.want)
		}
	}
}

func TestPatternsMatchWhatTheyWereMadeOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.StringMatching(`[a-c]{0,3}`), 1, 5).Draw(t, "parts")
		between := rapid.SliceOfN(rapid.StringMatching(`[a-c]{0,3}`), len(parts)-1, len(parts)-1).Draw(t, "between")
		var name strings.Builder
		for i, part := range parts {
			name.WriteString(part)
			if i < len(between) {
				name.WriteString(between[i])
			}
		}
		if pattern := strings.Join(parts, "*"); !matches(pattern, name.String()) {
			t.Fatalf("%q does not match %q", pattern, name.String())
		}
	})
}

func TestAKeyExpires(t *testing.T) {
	now := time.Unix(1000, 0)
	r := &rows{changed: make(chan struct{}, 1)}
	k := newKeys(r, r.changed, Options{Now: func() time.Time { return now }})
	text, _, err := k.CreateWith("guest", nil, false, Grant{Expires: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Check(text); err != nil {
		t.Errorf("before its end: %v", err)
	}
	now = now.Add(time.Hour)
	if _, err := k.Check(text); !errors.Is(err, ErrExpired) {
		t.Errorf("after its end: %v", err)
	}
	if _, err := k.Update("guest", func(g *Grant) error { g.Expires = time.Time{}; return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Check(text); err != nil {
		t.Errorf("without an end: %v", err)
	}
}

func TestRightsAreKeptAndChanged(t *testing.T) {
	k, _ := newTest()
	grant := Grant{Project: "web", Models: []string{"qwen*"}, Nodes: catalog.Selector{Require: map[string]string{"zone": "eu"}}, Expires: time.Unix(5000, 0),
		Rules: catalog.Rules{Limits: catalog.RateLimits{catalog.MetricRequests: 5}}}
	text, _, err := k.CreateWith("app", nil, false, grant)
	if err != nil {
		t.Fatal(err)
	}
	info, err := k.Check(text)
	if err != nil {
		t.Fatal(err)
	}
	got := Grant{info.Project, info.Models, info.Nodes, info.Expires, info.Rules, info.Origins}
	if diff := cmp.Diff(grant, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if info.AllowsNode(map[string]string{"zone": "us"}) || !info.AllowsNode(map[string]string{"zone": "eu"}) {
		t.Error("node labels are not heeded")
	}
	if _, err := k.Update("nobody", func(*Grant) error { return nil }); !errors.Is(err, ErrNotFound) {
		t.Errorf("a key that is none: %v", err)
	}
}

func TestWrongKeysAreRationedByAddress(t *testing.T) {
	now := time.Unix(1000, 0)
	r := &rows{changed: make(chan struct{}, 1)}
	k := newKeys(r, r.changed, Options{Now: func() time.Time { return now }})
	right, _, err := k.Create("app", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	wrong := right[:len(right)-1] + "a"
	if wrong == right {
		wrong = right[:len(right)-1] + "b"
	}
	from := netip.MustParseAddr("198.51.100.7")
	for i := range missBurst {
		if _, err := k.CheckFrom(wrong, from); !errors.Is(err, ErrUnknown) {
			t.Fatalf("try %d: %v", i+1, err)
		}
	}
	var over *RationError
	for _, text := range []string{wrong, "nonsense"} {
		if _, err := k.CheckFrom(text, from); !errors.As(err, &over) || over.RetryAfter < time.Second {
			t.Errorf("over the ration: %v", err)
		}
	}
	if _, err := k.CheckFrom(right, from); err != nil {
		t.Errorf("a right key from there: %v", err)
	}
	if _, err := k.CheckFrom(wrong, netip.MustParseAddr("198.51.100.8")); !errors.Is(err, ErrUnknown) {
		t.Errorf("its neighbour: %v", err)
	}
	now = now.Add(over.RetryAfter)
	if _, err := k.CheckFrom(wrong, from); !errors.Is(err, ErrUnknown) {
		t.Errorf("after the pause: %v", err)
	}
	// A network of one customer is one client.
	for i := range missBurst {
		if _, err := k.CheckFrom(wrong, netip.MustParseAddr(fmt.Sprintf("2001:db8:1:2::%x", i+1))); !errors.Is(err, ErrUnknown) {
			t.Fatalf("try %d: %v", i+1, err)
		}
	}
	if _, err = k.CheckFrom(wrong, netip.MustParseAddr("2001:db8:1:2:ffff::1")); !errors.As(err, &over) {
		t.Errorf("another address of the network: %v", err)
	}
}

func TestRationsAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	var r rations
	address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	for i := range 2 * maxRationed {
		r.take(address(i), now)
	}
	if len(r.from) > maxRationed+1 {
		t.Errorf("%d addresses are remembered", len(r.from))
	}
	if r.take(address(2*maxRationed), now) == 0 {
		t.Error("those beyond the table do not share a ration")
	}
	now = now.Add(time.Hour)
	if r.take(address(2*maxRationed), now) != 0 || len(r.from) > 2 {
		t.Errorf("%d addresses are remembered after an hour", len(r.from))
	}
}

// Many who come at once with a key that is none cost one look at the store.
func TestConcurrentMissesCostOneLookup(t *testing.T) {
	k, r := newTest()
	if _, _, err := k.Create("app", nil, false); err != nil {
		t.Fatal(err)
	}
	before := r.reads
	wrong := Prefix + strings.Repeat("a", idChars+secretChars)
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() { _, _ = k.Check(wrong) })
	}
	all.Wait()
	if r.reads > before+1 {
		t.Errorf("%d looks at the store", r.reads-before)
	}
}

func TestKeysNameTheOriginsOfPages(t *testing.T) {
	k, _ := newTest()
	if k.AllowsOrigin("https://app.example") {
		t.Error("a page may use a key that is not there")
	}
	_, info, err := k.CreateWith("page", nil, false, Grant{Origins: []string{"https://app.example"}})
	if err != nil || !info.AllowsOrigin("https://app.example") || info.AllowsOrigin("https://app.example:8443") {
		t.Fatalf("%+v, %v", info, err)
	}
	if !k.AllowsOrigin("https://app.example") || k.AllowsOrigin("https://other.example") {
		t.Error("other pages than its own may use it, or its own may not")
	}
	if _, err := k.Update("page", func(g *Grant) error { g.Origins = []string{"*"}; return nil }); err != nil || !k.AllowsOrigin("https://other.example") {
		t.Errorf("any page may not use it: %v", err)
	}
	if _, err := k.Revoke("page"); err != nil || k.AllowsOrigin("https://app.example") {
		t.Errorf("a page may use a key that is revoked: %v", err)
	}
}
