package catalog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"llmgw/crdt"
)

// shelf is one namespace of documents, as they are read from rows that others wrote.
type shelf struct {
	key  crdt.Key                                      // of the row "doc-1" in it
	what string                                        // how errors call the document
	list func(b box) (any, error)                      // all
	read func(key crdt.Key, row crdt.Row) (any, error) // one
	// cells are those that this version reads, with a value that each may have.
	cells map[string]any
}

func shelves() map[string]shelf {
	rules := map[string]any{limitPrefix + "requests": uint64(1), limitPrefix + "parallel": uint64(0), budgetPrefix + "day/tokens": budgetCell{1, true}}
	with := func(more map[string]any) map[string]any {
		all := maps.Clone(rules)
		maps.Copy(all, more)
		return all
	}
	return map[string]shelf{
		"models": {
			modelKey("doc-1"), "model", func(b box) (any, error) { return b.Models() },
			func(key crdt.Key, row crdt.Row) (any, error) { return modelFromRow(key, row) },
			map[string]any{cellName: "X", cellSource: Source{URI: "u"}, cellLimits: Limits{Context: 1}, cellScale: Scale{Min: 1, Max: 1}, cellPin: "p",
				cellState: ModelStopped, cellLabels: Selector{}, cellDeclared: Declaration{Node: "n"}, aliasPrefix + "a": "A", profilePrefix + "p": Profile{ID: "p", Engine: "sim"}},
		},
		"API keys": {
			crdt.NewKey(NamespaceKeys, "doc-1"), "API key", func(b box) (any, error) { return b.APIKeys() },
			func(_ crdt.Key, row crdt.Row) (any, error) { return keyFromRow("doc-1", row) },
			with(map[string]any{cellRecord: APIKey{Name: "k"}, cellKeyProject: "p", cellKeyModels: []string{"m"}, cellKeyNodes: Selector{}, cellKeyExpires: int64(1), cellKeyOrigins: []string{"*"}}),
		},
		"tenants": {
			crdt.NewKey(NamespaceTenants, "doc-1"), "tenant", func(b box) (any, error) { return b.Tenants() },
			func(_ crdt.Key, row crdt.Row) (any, error) { return tenantFromRow("doc-1", row) }, rules,
		},
		"projects": {
			crdt.NewKey(NamespaceProjects, "doc-1"), "project", func(b box) (any, error) { return b.Projects() },
			func(_ crdt.Key, row crdt.Row) (any, error) { return projectFromRow("doc-1", row) }, with(map[string]any{cellTenant: "t"}),
		},
		"providers": {
			crdt.NewKey(NamespaceProviders, "doc-1"), "provider", func(b box) (any, error) { return b.Providers() },
			func(_ crdt.Key, row crdt.Row) (any, error) { return providerFromRow("doc-1", row) },
			map[string]any{cellProviderTarget: providerTarget{"https://a.example", true}, cellProviderTrust: providerTrust{"", true}, cellProviderModels: []ProviderModel{{Pattern: "m"}},
				cellProviderPriority: 1, cellProviderHeld: "last", cellProviderParallel: 1, cellProviderNative: []Ability{AbilityMessages}, cellProviderHost: providerHost{"s", true},
				providerKeyPrefix + "k": providerKeyCell{"sk", "https://a.example:443", 0}},
		},
		"nodes": {
			nodeKey("doc-1"), "node", func(b box) (any, error) { return b.NodeSettings() },
			func(key crdt.Key, row crdt.Row) (any, error) { return nodeSettingsFromRow(key, row) },
			map[string]any{cellLocation: "l", cellCordon: true, labelPrefix + "a": "b", devicePrefix + "cpu": true},
		},
		"prices": {
			crdt.NewKey(NamespacePrices, "doc-1", "y"), "price", func(b box) (any, error) { return b.Prices() },
			func(key crdt.Key, row crdt.Row) (any, error) { return priceFromRow(key, row) },
			map[string]any{string(PriceInput): uint64(1), string(PriceImage): uint64(0)},
		},
		"routes": {
			crdt.NewKey(NamespaceRoutes, "doc-1"), "route", func(b box) (any, error) { return b.Routes() },
			func(key crdt.Key, row crdt.Row) (any, error) { return routeFromRow(key, row) }, map[string]any{cellRecord: Route{Name: "X", Targets: []string{"m"}}},
		},
		"assignments": {
			crdt.NewKey(NamespaceAssignments, "doc-1", "0"), "assignment", func(b box) (any, error) { return b.Assignments() },
			func(key crdt.Key, row crdt.Row) (any, error) { return assignmentFromRow(key, row) }, map[string]any{cellOwner: Assignment{Owner: "o", Epoch: 1}},
		},
	}
}

func eachShelf(t *testing.T, law func(t *testing.T, s shelf)) {
	for name, s := range shelves() {
		t.Run(name, func(t *testing.T) { law(t, s) })
	}
}

// garbage is what none of the cells of this version can hold.
func garbage() map[string][]byte {
	return map[string][]byte{
		"cut short": {0x82, 0x01}, "too long": {0x01, 0x01}, "no CBOR": {0xff}, "text that is not UTF-8": {0x61, 0xff},
		"a tag": {0xc1, 0x61, 'x'}, "deep": []byte(strings.Repeat("\x81", 2000)), "huge": {0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	}
}

// A cell that cannot be read is an error that names it; nothing panics.
func TestGarbageInACellIsRefused(t *testing.T) {
	eachShelf(t, func(t *testing.T, s shelf) {
		if _, err := s.read(s.key, rowOf(t, s.cells)); err != nil {
			t.Fatalf("before: %v", err)
		}
		for cell := range s.cells {
			for name, value := range garbage() {
				row := rowOf(t, s.cells)
				row.Cells[cell] = crdt.Cell{At: 1, Value: value}
				if _, err := s.read(s.key, row); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("decode cell %q", cell)) {
					t.Errorf("%s in %s: error is %v", name, cell, err)
				}
			}
		}
	})
}

// A list that holds an unreadable row names the document; once it is removed the list is whole again.
func TestAnUnreadableRowIsNamed(t *testing.T) {
	eachShelf(t, func(t *testing.T, s shelf) {
		b := quickBox(t)
		cell := slices.Sorted(maps.Keys(s.cells))[0]
		b.put(t, s.key, map[string][]byte{cell: {0xff}})
		_, err := s.list(b)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("decode cell %q", cell)) || !strings.Contains(err.Error(), "doc-1") {
			t.Fatalf("error is %v", err)
		}
		b.put(t, s.key, map[string][]byte{cell: nil})
		if _, err := s.list(b); err != nil {
			t.Errorf("with the cell emptied: %v", err)
		}
	})
}

// A key with more or fewer parts than this version writes says so, in words.
func TestKeysOfAnotherShapeAreRefused(t *testing.T) {
	eachShelf(t, func(t *testing.T, s shelf) {
		for _, parts := range [][]string{{}, {"a", "b", "c"}} {
			b := quickBox(t)
			key := crdt.NewKey(s.key.Namespace(), parts...)
			b.put(t, key, map[string][]byte{"some": enc(t, 1)})
			_, err := s.list(b)
			want := 1
			if s.what == "price" || s.what == "assignment" {
				want = 2
			}
			text := fmt.Sprintf("the %s key %s has another shape: %d parts instead of %d", s.what, key, len(parts), want)
			if err == nil || err.Error() != text {
				t.Errorf("error is %v, want %s", err, text)
			}
		}
	})
}

func TestKeysThatAreNoneAreRefused(t *testing.T) {
	for name, key := range map[string]crdt.Key{"empty": "", "cut short": "\x06mod", "length too long": "\x86\x00models"} {
		_, err := keyParts(key, "model", 1)
		if !errors.Is(err, crdt.ErrMalformed) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	if parts, err := keyParts(crdt.NewKey("models", ""), "model", 1); err != nil || !slices.Equal(parts, []string{""}) {
		t.Errorf("%q, %v", parts, err)
	}
}

// A row of which nothing has come yet, or only what another version wrote, is read with nothing in it.
func TestPartsOfARowAreRead(t *testing.T) {
	eachShelf(t, func(t *testing.T, s shelf) {
		bare, err := s.read(s.key, crdt.Row{Length: 1})
		must(t, err)
		future, err := s.read(s.key, rowOf(t, map[string]any{"future": []any{1, "x"}, "limit/joules": -1, "budget/week/tokens": "none", "future/x": 1.5}))
		must(t, err)
		equal(t, "with unknown cells", bare, future)
		for cell, v := range s.cells {
			if _, err := s.read(s.key, rowOf(t, map[string]any{cell: v})); err != nil {
				t.Errorf("with %s alone: %v", cell, err)
			}
		}
	})
}

// A cell that is there without a value is one that was unset.
func TestAnEmptyCellIsUnset(t *testing.T) {
	eachShelf(t, func(t *testing.T, s shelf) {
		bare, err := s.read(s.key, crdt.Row{Length: 1})
		must(t, err)
		row := rowOf(t, s.cells)
		for cell := range row.Cells {
			row.Cells[cell] = crdt.Cell{At: 1}
		}
		got, err := s.read(s.key, row)
		must(t, err)
		equal(t, "with empty cells", bare, got)
	})
}

// A cell's value may hold more than this version knows of.
func TestUnknownFieldsOfACellAreIgnored(t *testing.T) {
	eachShelf(t, func(t *testing.T, s shelf) {
		want, err := s.read(s.key, rowOf(t, s.cells))
		must(t, err)
		row := rowOf(t, s.cells)
		for cell, c := range row.Cells {
			value := c.Value
			if value[0]>>5 != 5 || value[0]&31 >= 22 { // a map with room for two more in its first byte
				continue
			}
			more := append([]byte{value[0] + 2}, value[1:]...)
			more = append(append(more, enc(t, "zz_future")...), enc(t, map[string]int{"a": 1})...)
			more = append(append(more, enc(t, 99)...), enc(t, []int{1})...)
			row.Cells[cell] = crdt.Cell{At: c.At, By: c.By, Value: more}
		}
		got, err := s.read(s.key, row)
		must(t, err)
		equal(t, "with unknown fields", want, got)
	})
}

// Each name in a row is there once, whatever the cells under it say.
func TestNamesComeFromTheKeys(t *testing.T) {
	m, err := modelFromRow(modelKey("x"), rowOf(t, map[string]any{
		cellName: "Other", aliasPrefix + "a": "B", aliasPrefix + "b": "B", aliasPrefix + "c": "",
		profilePrefix + "p": Profile{ID: "q", Engine: "e"}, profilePrefix + "q": Profile{ID: "q"}, profilePrefix + "r": Profile{},
	}))
	must(t, err)
	equal(t, "model", Model{ID: "x", Name: "x", State: ModelServed, Aliases: []string{"B", "a", "c"}, Profiles: []Profile{{ID: "p", Engine: "e"}, {ID: "q"}, {ID: "r"}}}, m)
	k, err := keyFromRow("x", rowOf(t, map[string]any{cellRecord: APIKey{ID: "y", Name: "n"}}))
	must(t, err)
	equal(t, "key", APIKey{ID: "x", Name: "n"}, k)
	r, err := routeFromRow(crdt.NewKey(NamespaceRoutes, "x"), rowOf(t, map[string]any{cellRecord: Route{ID: "y", Name: "Z"}}))
	must(t, err)
	equal(t, "route", Route{ID: "x", Name: "Z"}, r)
	a, err := assignmentFromRow(crdt.NewKey(NamespaceAssignments, "m", "3"), rowOf(t, map[string]any{cellOwner: Assignment{Model: "n", Slot: 4, Owner: "o"}}))
	must(t, err)
	equal(t, "assignment", Assignment{Model: "m", Slot: 3, Owner: "o"}, a)
}

// A store that is closed is told as such, and never as something that is not there.
func TestErrorsOfTheStoreComeThrough(t *testing.T) {
	c := closedBox(t)
	calls := map[string]func() error{
		"Models":         func() error { _, err := c.Models(); return err },
		"Model":          func() error { _, err := c.Model("m"); return err },
		"CreateModel":    func() error { return c.CreateModel(smol()) },
		"UpdateModel":    func() error { return c.UpdateModel("m", func(*Model) error { return nil }) },
		"DeleteModel":    func() error { return c.DeleteModel("m") },
		"Assignments":    func() error { _, err := c.Assignments(); return err },
		"PutAssignment":  func() error { return c.PutAssignment(Assignment{Model: "m"}) },
		"APIKeys":        func() error { _, err := c.APIKeys(); return err },
		"APIKey":         func() error { _, err := c.APIKey("k"); return err },
		"PutAPIKey":      func() error { return c.PutAPIKey(APIKey{ID: "k"}) },
		"UpdateAPIKey":   func() error { return c.UpdateAPIKey("k", func(*APIKey) error { return nil }) },
		"RevokeAPIKey":   func() error { return c.RevokeAPIKey("k") },
		"Session":        func() error { _, err := c.Session("s"); return err },
		"PutSession":     func() error { return c.PutSession(Session{ID: "s"}) },
		"DeleteSession":  func() error { return c.DeleteSession("s") },
		"Tenants":        func() error { _, err := c.Tenants(); return err },
		"CreateTenant":   func() error { _, err := c.CreateTenant(Tenant{ID: "t"}); return err },
		"UpdateTenant":   func() error { return c.UpdateTenant("t", func(*Tenant) error { return nil }) },
		"RemoveTenant":   func() error { return c.RemoveTenant("t") },
		"Projects":       func() error { _, err := c.Projects(); return err },
		"CreateProject":  func() error { _, err := c.CreateProject(Project{ID: "p", Tenant: "t"}); return err },
		"UpdateProject":  func() error { return c.UpdateProject("p", func(*Project) error { return nil }) },
		"RemoveProject":  func() error { return c.RemoveProject("p") },
		"Providers":      func() error { _, err := c.Providers(); return err },
		"Provider":       func() error { _, err := c.Provider("p"); return err },
		"SetProvider":    func() error { return c.SetProvider("p", func(*Provider) error { return nil }) },
		"RemoveProvider": func() error { return c.RemoveProvider("p") },
		"Routes":         func() error { _, err := c.Routes(); return err },
		"PutRoute":       func() error { return c.PutRoute(Route{Name: "r", Targets: []string{"m"}}) },
		"DeleteRoute":    func() error { return c.DeleteRoute("r") },
		"NodeSettings":   func() error { _, err := c.NodeSettings(); return err },
		"UpdateNode":     func() error { return c.UpdateNode("n", func(*NodeSettings) error { return nil }) },
		"Prices":         func() error { _, err := c.Prices(); return err },
		"SetPrice":       func() error { return c.SetPrice(Price{Model: "m", Micros: map[PriceKind]uint64{PriceInput: 1}}) },
		"UnsetPrice":     func() error { return c.UnsetPrice("m", "") },
		"Settings":       func() error { _, err := c.Settings(); return err },
		"UpdateSettings": func() error { return c.UpdateSettings(func(map[string]string) error { return nil }) },
	}
	for name, call := range calls {
		if err := call(); err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrInUse) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}
