package keys

import (
	"errors"
	"testing"
	"time"

	"llmgw/crdt/store"
	"llmgw/mesh/catalog"
)

func TestKeysOfTheRealCatalog(t *testing.T) {
	s, err := store.Open(t.TempDir(), store.Options{Now: time.Now})
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	here := New(catalog.New(s), Options{Creator: "peer"})
	there := New(catalog.New(s), Options{Creator: "peer"})
	text, _, err := here.Create("a", []string{ScopeAdmin, ScopeInfer, ScopeAdmin}, true)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	for _, k := range []*Keys{here, there} {
		info, err := k.Check(text)
		if err != nil || info.Name != "a" || len(info.Scopes) != 2 || !info.First {
			t.Fatalf("check: %+v, %v", info, err)
		}
	}
	if _, err := there.Revoke("a"); err != nil {
		t.Fatalf("revoke: %v", err)
	}
	if _, err := here.Check(text); !errors.Is(err, ErrUnknown) {
		t.Errorf("check after a revoke elsewhere: %v", err)
	}
	if list, err := here.List(); err != nil || len(list) != 0 {
		t.Errorf("list is %v, %v", list, err)
	}
}
