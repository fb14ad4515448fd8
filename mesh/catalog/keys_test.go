package catalog

import (
	"errors"
	"math"
	"testing"

	"llmgw/crdt"
	"llmgw/crdt/store"

	"github.com/google/go-cmp/cmp"
)

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

func TestRevokedKeyStaysRevoked(t *testing.T) {
	a, b := newBox(t), newBox(t)
	key := APIKey{ID: "k1", Name: "laptop", Hash: []byte{1, 2}, Scopes: []string{ScopeInfer}, Created: 5, Creator: "a"}
	must(t, a.PutAPIKey(key))
	exchange(t, a, b)
	got, err := b.APIKey("k1")
	must(t, err)
	if diff := cmp.Diff(key, got); diff != "" {
		t.Error(diff)
	}
	must(t, b.RevokeAPIKey("k1"))
	exchange(t, a, b)
	if _, err := a.APIKey("k1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a revoked key reads as %v", err)
	}
	if err := a.PutAPIKey(key); !errors.Is(err, ErrNotFound) {
		t.Errorf("a revoked key could be written again: %v", err)
	}
	if err := a.RevokeAPIKey("k1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
}

func TestKeysAreListedOldestFirst(t *testing.T) {
	b := newBox(t)
	for _, k := range []APIKey{{ID: "last", Created: math.MaxInt64}, {ID: "z", Created: 1}, {ID: "b", Created: 2}, {ID: "a", Created: 2}, {ID: "first", Created: math.MinInt64}} {
		must(t, b.PutAPIKey(k))
	}
	keys, err := b.APIKeys()
	must(t, err)
	var ids []string
	for _, k := range keys {
		ids = append(ids, k.ID)
	}
	if diff := cmp.Diff([]string{"first", "z", "a", "b", "last"}, ids); diff != "" {
		t.Error(diff)
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
