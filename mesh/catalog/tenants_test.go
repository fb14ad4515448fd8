package catalog

import (
	"errors"
	"strings"
	"testing"

	"llmgw/crdt"
	"llmgw/crdt/store"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func someRules() Rules {
	return Rules{Limits: RateLimits{MetricRequests: 600, MetricParallel: 0},
		Budgets: []Budget{{PeriodDay, UnitTokens, 5, false}, {PeriodMonth, UnitMicros, 20_000_000, true}, {PeriodMonth, UnitTokens, 0, false}}}
}

func TestKeysComeBackAsWritten(t *testing.T) {
	b := newBox(t)
	_, err := b.CreateProject(Project{ID: "Web"})
	must(t, err)
	want := APIKey{ID: "k1", Name: "laptop", Hash: []byte{1, 2}, Scopes: []string{ScopeInfer}, Created: 5, Creator: "a",
		Project: "web", Models: []string{"qwen*"}, Nodes: Selector{Require: map[string]string{"zone": "eu"}}, Expires: 99, Rules: someRules()}
	must(t, b.PutAPIKey(want))
	got, err := b.APIKey("k1")
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	all, err := b.APIKeys()
	must(t, err)
	if diff := cmp.Diff([]APIKey{want}, all); diff != "" {
		t.Error(diff)
	}
}

// A key that an older version made has its record alone.
func TestKeysOfTheOlderShapeAreRead(t *testing.T) {
	b := newBox(t)
	type older struct {
		ID, Name string
		Hash     []byte `cbor:"hash"`
		Scopes   []string
		Created  int64
		Creator  string
		First    bool
	}
	_, err := b.store.Update(func(tx *store.Tx) error {
		return set(tx, crdt.NewKey(NamespaceKeys, "k1"), cellRecord, older{ID: "k1", Name: "old", Hash: []byte{7}, Scopes: []string{ScopeAdmin}, Created: 3})
	})
	must(t, err)
	got, err := b.APIKey("k1")
	must(t, err)
	if diff := cmp.Diff(APIKey{ID: "k1", Name: "old", Hash: []byte{7}, Scopes: []string{ScopeAdmin}, Created: 3}, got); diff != "" {
		t.Error(diff)
	}
	must(t, b.UpdateAPIKey("k1", func(k *APIKey) error { k.Limits = RateLimits{MetricTokens: 9}; return nil }))
	got, err = b.APIKey("k1")
	must(t, err)
	if got.Limits[MetricTokens] != 9 || got.Hash[0] != 7 {
		t.Errorf("after a change: %+v", got)
	}
}

// Two boxes that change different limits of one key at once keep both changes.
func TestEditsOfDifferentLimitsSurvive(t *testing.T) {
	a, b := newBox(t), newBox(t)
	must(t, a.PutAPIKey(APIKey{ID: "k1", Name: "k", Rules: Rules{Limits: RateLimits{MetricRequests: 1, MetricTokens: 1}}}))
	exchange(t, a, b)
	must(t, a.UpdateAPIKey("k1", func(k *APIKey) error {
		delete(k.Limits, MetricTokens)
		k.SetBudget(Budget{PeriodDay, UnitTokens, 7, false})
		return nil
	}))
	must(t, b.UpdateAPIKey("k1", func(k *APIKey) error {
		k.Limits[MetricRequests], k.Expires = 5, 44
		k.SetBudget(Budget{PeriodMonth, UnitTokens, 8, true})
		return nil
	}))
	exchange(t, a, b)
	exchange(t, a, b)
	want := Rules{Limits: RateLimits{MetricRequests: 5}, Budgets: []Budget{{PeriodDay, UnitTokens, 7, false}, {PeriodMonth, UnitTokens, 8, true}}}
	for _, box := range []box{a, b} {
		got, err := box.APIKey("k1")
		must(t, err)
		if diff := cmp.Diff(want, got.Rules); diff != "" || got.Expires != 44 {
			t.Errorf("expires %d, %s", got.Expires, diff)
		}
	}
}

// A change made on another box while a key was revoked does not bring it back.
func TestRevokingWinsOverChanges(t *testing.T) {
	a, b := newBox(t), newBox(t)
	must(t, a.PutAPIKey(APIKey{ID: "k1", Name: "k"}))
	exchange(t, a, b)
	must(t, a.RevokeAPIKey("k1"))
	for i := range 5 {
		must(t, b.UpdateAPIKey("k1", func(k *APIKey) error { k.Expires = int64(100 + i); return nil }))
	}
	exchange(t, a, b)
	for _, box := range []box{a, b} {
		if _, err := box.APIKey("k1"); !errors.Is(err, ErrNotFound) {
			t.Errorf("the key is there: %v", err)
		}
		if err := box.UpdateAPIKey("k1", func(*APIKey) error { return nil }); !errors.Is(err, ErrNotFound) {
			t.Errorf("it was changed: %v", err)
		}
	}
}

func TestWhatCannotBeKeptIsNotWritten(t *testing.T) {
	b := newBox(t)
	must(t, b.PutAPIKey(APIKey{ID: "k1", Name: "k"}))
	for name, change := range map[string]func(*APIKey){
		"a metric": func(k *APIKey) { k.Limits = RateLimits{"speed": 1} },
		"a limit":  func(k *APIKey) { k.Limits = RateLimits{MetricTokens: crdt.MaxAmount + 1} },
		"a period": func(k *APIKey) { k.Budgets = []Budget{{"week", UnitTokens, 1, false}} },
		"a unit":   func(k *APIKey) { k.Budgets = []Budget{{PeriodDay, "apples", 1, false}} },
		"a budget": func(k *APIKey) { k.Budgets = []Budget{{PeriodDay, UnitTokens, crdt.MaxAmount + 1, false}} },
		"two budgets": func(k *APIKey) {
			k.Budgets = []Budget{{PeriodDay, UnitTokens, 1, false}, {PeriodDay, UnitTokens, 2, true}}
		},
		"a project":         func(k *APIKey) { k.Project = "gone" },
		"a pattern":         func(k *APIKey) { k.Models = []string{"a b"} },
		"an empty pattern":  func(k *APIKey) { k.Models = []string{""} },
		"too many patterns": func(k *APIKey) { k.Models = make([]string, maxPatterns+1) },
		"a label":           func(k *APIKey) { k.Nodes.Forbid = map[string]string{"a b": "c"} },
		"an end":            func(k *APIKey) { k.Expires = -1 },
	} {
		if err := b.UpdateAPIKey("k1", func(k *APIKey) error { change(k); return nil }); err == nil {
			t.Errorf("%s that cannot be was written", name)
		}
	}
	got, err := b.APIKey("k1")
	must(t, err)
	if diff := cmp.Diff(APIKey{ID: "k1", Name: "k"}, got); diff != "" {
		t.Error(diff)
	}
	for _, pattern := range []string{"*", "**", "org/*", "qwen*:q4", "*small*"} {
		must(t, b.UpdateAPIKey("k1", func(k *APIKey) error { k.Models = []string{pattern}; return nil }))
	}
}

func TestTenantsAndProjects(t *testing.T) {
	a, b := newBox(t), newBox(t)
	acme, err := a.CreateTenant(Tenant{ID: " ACME ", Rules: someRules()})
	must(t, err)
	_, err = a.CreateProject(Project{ID: "web", Tenant: "Acme"})
	must(t, err)
	exchange(t, a, b)
	tenants, err := b.Tenants()
	must(t, err)
	projects, err := b.Projects()
	must(t, err)
	if diff := cmp.Diff([]Tenant{{ID: "acme", Rules: someRules()}}, tenants); diff != "" || acme.ID != "acme" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Project{{ID: "web", Tenant: "acme"}}, projects); diff != "" {
		t.Error(diff)
	}
	var group *GroupError
	_, err = b.CreateTenant(Tenant{ID: "Acme"})
	if !errors.Is(err, ErrTaken) {
		t.Errorf("a name twice: %v", err)
	}
	for _, name := range []string{"", "a b", "a:b", "-x", "é", strings.Repeat("x", maxGroupName+1)} {
		if _, err := b.CreateTenant(Tenant{ID: name}); !errors.As(err, &group) {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	if err := b.UpdateProject("web", func(p *Project) error { p.Tenant = "gone"; return nil }); !errors.As(err, &group) {
		t.Errorf("a tenant that is none: %v", err)
	}
	if err := b.RemoveTenant("acme"); !errors.Is(err, ErrInUse) {
		t.Errorf("a tenant with a project: %v", err)
	}
	must(t, b.UpdateProject("WEB", func(p *Project) error { p.Tenant = ""; return nil }))
	must(t, b.RemoveTenant("Acme"))
	if err := b.RemoveTenant("acme"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a tenant that is gone: %v", err)
	}
	// A name may be used again.
	_, err = b.CreateTenant(Tenant{ID: "acme"})
	must(t, err)
	tenants, err = b.Tenants()
	must(t, err)
	if diff := cmp.Diff([]Tenant{{ID: "acme"}}, tenants); diff != "" {
		t.Errorf("it came back with what it had: %s", diff)
	}
}

func TestPricesAreSetByKind(t *testing.T) {
	a, b := newBox(t), newBox(t)
	must(t, a.SetPrice(Price{Model: "GPT-4o", Provider: "OpenAI", Micros: map[PriceKind]uint64{PriceInput: 2_500_000, PriceOutput: 10_000_000}}))
	must(t, a.SetPrice(Price{Provider: "openai", Micros: map[PriceKind]uint64{PriceInput: 1}}))
	exchange(t, a, b)
	must(t, a.SetPrice(Price{Model: "gpt-4o", Provider: "openai", Micros: map[PriceKind]uint64{PriceInput: 3_000_000}}))
	must(t, b.SetPrice(Price{Model: "gpt-4o", Provider: "openai", Micros: map[PriceKind]uint64{PriceCachedInput: 0}}))
	exchange(t, a, b)
	got, err := b.Prices()
	must(t, err)
	want := []Price{{Provider: "openai", Micros: map[PriceKind]uint64{PriceInput: 1}},
		{Model: "gpt-4o", Provider: "openai", Micros: map[PriceKind]uint64{PriceInput: 3_000_000, PriceOutput: 10_000_000, PriceCachedInput: 0}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	must(t, b.UnsetPrice("GPT-4o", "openai"))
	if err := b.UnsetPrice("gpt-4o", "openai"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a price that is gone: %v", err)
	}
	must(t, b.SetPrice(Price{Model: "gpt-4o", Provider: "openai", Micros: map[PriceKind]uint64{PriceImage: 5}}))
	got, err = b.Prices()
	must(t, err)
	if len(got) != 2 || len(got[1].Micros) != 1 {
		t.Errorf("it came back with what it had: %+v", got)
	}
	for name, p := range map[string]Price{
		"nobody": {Micros: map[PriceKind]uint64{PriceInput: 1}}, "nothing": {Model: "m"}, "air": {Model: "m", Micros: map[PriceKind]uint64{"air": 1}},
		"too much": {Model: "m", Micros: map[PriceKind]uint64{PriceInput: crdt.MaxAmount + 1}}, "no name": {Model: "a b", Micros: map[PriceKind]uint64{PriceInput: 1}},
	} {
		if err := b.SetPrice(p); err == nil {
			t.Errorf("a price for %s was set", name)
		}
	}
}

// Rules are read from their cells as they were written into them.
func TestRulesAreReadAsWritten(t *testing.T) {
	b := newBox(t)
	rapid.Check(t, func(t *rapid.T) {
		var r Rules
		for _, m := range Metrics() {
			if rapid.Bool().Draw(t, string(m)) {
				if r.Limits == nil {
					r.Limits = RateLimits{}
				}
				r.Limits[m] = rapid.Uint64Range(0, crdt.MaxAmount).Draw(t, "limit")
			}
		}
		for _, p := range Periods() {
			for _, u := range []Unit{UnitTokens, UnitMicros} {
				if rapid.Bool().Draw(t, string(p)+string(u)) {
					r.SetBudget(Budget{p, u, rapid.Uint64Range(0, crdt.MaxAmount).Draw(t, "amount"), rapid.Bool().Draw(t, "hard")})
				}
			}
		}
		_, err := b.CreateTenant(Tenant{ID: "t", Rules: r})
		if errors.Is(err, ErrTaken) {
			err = b.UpdateTenant("t", func(had *Tenant) error { had.Rules = r; return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.Tenants()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, got[0].Rules); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
	})
}
