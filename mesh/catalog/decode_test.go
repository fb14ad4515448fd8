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

// A list goes on without a row that cannot be read, whichever cell it is and whatever stands
// there. The row is named with who wrote it, stays as it is, and goes by its key alone.
func TestAnUnreadableRowFailsNobodyElse(t *testing.T) {
	eachShelf(t, func(t *testing.T, s shelf) {
		b := quickBox(t)
		other := otherKey(s)
		for cell, v := range s.cells {
			b.put(t, other, map[string][]byte{cell: enc(t, v)})
		}
		good, err := s.list(b)
		must(t, err)
		parts, err := s.key.Parts()
		must(t, err)
		for cell := range s.cells {
			for name, value := range garbage() {
				b.put(t, s.key, map[string][]byte{cell: value})
				before := b.row(t, s.key)
				got, err := s.list(b)
				must(t, err)
				if s.what != "node" { // whose settings count as the narrowest
					equal(t, "with "+name+" in "+cell, good, got)
				}
				bad, err := b.Unreadable()
				must(t, err)
				if len(bad) != 1 || bad[0].Key != s.key || bad[0].By != b.store.ID() || !strings.Contains(bad[0].Error(), fmt.Sprintf("decode cell %q", cell)) {
					t.Fatalf("%s in %s is told as %v", name, cell, bad)
				}
				if !b.row(t, s.key).Equal(before) {
					t.Errorf("%s in %s was changed by being read", name, cell)
				}
				must(t, b.RemoveUnreadable(s.key.Namespace(), parts...))
				notFound(t, "again", b.RemoveUnreadable(s.key.Namespace(), parts...))
			}
		}
		otherParts, err := other.Parts()
		must(t, err)
		notFound(t, "one that can be read", b.RemoveUnreadable(other.Namespace(), otherParts...))
		bad, err := b.Unreadable(s.key.Namespace())
		must(t, err)
		if got, err := s.list(b); err != nil || len(bad) > 0 {
			t.Errorf("after all: %v, %v, %v", got, bad, err)
		}
	})
}

// otherKey is the key of another document beside that of a shelf.
func otherKey(s shelf) crdt.Key {
	parts, _ := s.key.Parts()
	return crdt.NewKey(s.key.Namespace(), append([]string{"doc-2"}, parts[1:]...)...)
}

// A key with more or fewer parts than this version writes is no document, and is told of
// in words.
func TestKeysOfAnotherShapeAreNamed(t *testing.T) {
	eachShelf(t, func(t *testing.T, s shelf) {
		for _, parts := range [][]string{{}, {"a", "b", "c"}} {
			b := quickBox(t)
			none, err := s.list(b)
			must(t, err)
			key := crdt.NewKey(s.key.Namespace(), parts...)
			b.put(t, key, map[string][]byte{"some": enc(t, 1)})
			got, err := s.list(b)
			must(t, err)
			equal(t, "list", none, got)
			want := 1
			if s.what == "price" || s.what == "assignment" {
				want = 2
			}
			bad, err := b.Unreadable(s.key.Namespace())
			must(t, err)
			text := fmt.Sprintf("row %s cannot be read: the %s key %s has another shape: %d parts instead of %d", key, s.what, key, len(parts), want)
			if len(bad) != 1 || bad[0].Error() != text || bad[0].By != 0 {
				t.Errorf("it is told as %v, want %s", bad, text)
			}
			must(t, b.RemoveUnreadable(s.key.Namespace(), parts...))
		}
	})
}

// Whoever asks for just that row, or is about to write it, is told by type; the row stays.
func TestAnUnreadableRowIsNotWritten(t *testing.T) {
	b := quickBox(t)
	spoil := func(cell string, namespace string, parts ...string) {
		b.put(t, crdt.NewKey(namespace, parts...), map[string][]byte{cell: {0xff}})
	}
	spoil(cellScale, NamespaceModels, "m")
	spoil(cellOwner, NamespaceAssignments, "m", "0")
	spoil(cellKeyExpires, NamespaceKeys, "k")
	spoil(cellRecord, NamespaceSessions, "s")
	spoil(limitPrefix+"requests", NamespaceTenants, "t")
	spoil(limitPrefix+"requests", NamespaceProjects, "p")
	spoil(cellProviderTarget, NamespaceProviders, "x")
	spoil(cellRecord, NamespaceRoutes, "r")
	spoil(string(PriceInput), NamespacePrices, "m", "")
	spoil(cellCordon, NamespaceNodes, "n")
	before, err := b.store.Since(0, 1<<20)
	must(t, err)
	named := smol()
	named.Name = "M"
	route := func(name string) Route { return Route{Name: name, Targets: []string{"z"}} }
	for name, call := range map[string]func() error{
		"Model":          func() error { _, err := b.Model("m"); return err },
		"CreateModel":    func() error { return b.CreateModel(named) },
		"UpdateModel":    func() error { return b.UpdateModel("m", func(*Model) error { return nil }) },
		"UnloadModel":    func() error { return b.UnloadModel("m", func(*Model) error { return nil }) },
		"PutAssignment":  func() error { return b.PutAssignment(Assignment{Model: "m", Epoch: 1 << 62}) },
		"APIKey":         func() error { _, err := b.APIKey("k"); return err },
		"PutAPIKey":      func() error { return b.PutAPIKey(APIKey{ID: "k", Name: "k"}) },
		"UpdateAPIKey":   func() error { return b.UpdateAPIKey("k", func(*APIKey) error { return nil }) },
		"Session":        func() error { _, err := b.Session("s"); return err },
		"PutSession":     func() error { return b.PutSession(Session{ID: "s"}) },
		"UpdateTenant":   func() error { return b.UpdateTenant("t", func(*Tenant) error { return nil }) },
		"UpdateProject":  func() error { return b.UpdateProject("p", func(*Project) error { return nil }) },
		"Provider":       func() error { _, err := b.Provider("x"); return err },
		"SetProvider":    func() error { return b.SetProvider("x", func(*Provider) error { return nil }) },
		"PutRoute":       func() error { return b.PutRoute(route("r")) },
		"a model's name": func() error { return b.PutRoute(route("m")) },
		"SetPrice":       func() error { return b.SetPrice(Price{Model: "m", Micros: map[PriceKind]uint64{PriceOutput: 1}}) },
		"UpdateNode":     func() error { return b.UpdateNode("n", func(*NodeSettings) error { return nil }) },
	} {
		if e := (*UnreadableError)(nil); !errors.As(call(), &e) {
			t.Errorf("%s: error is %v", name, call())
		}
	}
	after, err := b.store.Since(0, 1<<20)
	must(t, err)
	equal(t, "rows", before.Items, after.Items)
	slots, err := b.UnreadableSlots()
	must(t, err)
	equal(t, "slots", []AssignmentID{{"m", 0}}, slots)
	has, err := b.HasAPIKeys()
	if must(t, err); !has {
		t.Error("a key that cannot be read is none for who makes the first")
	}
}

// What cannot be read widens no right: a group that it may count for is in use, and a node
// whose labels it may hold is taken by no selector.
func TestAnUnreadableRowWidensNothing(t *testing.T) {
	b := quickBox(t)
	for _, id := range []string{"a", "z"} {
		_, err := b.CreateTenant(Tenant{ID: id})
		must(t, err)
		_, err = b.CreateProject(Project{ID: id})
		must(t, err)
	}
	bad := crdt.NewKey(NamespaceProjects, "bad")
	b.put(t, bad, map[string][]byte{limitPrefix + "requests": {0xff}, cellTenant: enc(t, "a")})
	b.put(t, crdt.NewKey(NamespaceKeys, "bad"), map[string][]byte{cellKeyExpires: {0xff}, cellKeyProject: enc(t, "a")})
	for name, remove := range map[string]func(string) error{"tenant": b.RemoveTenant, "project": b.RemoveProject} {
		if err := remove("a"); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "/bad, which cannot be read") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	must(t, b.RemoveProject("z"))
	b.put(t, bad, map[string][]byte{cellTenant: {0xff}})
	if err := b.RemoveTenant("z"); !errors.Is(err, ErrInUse) {
		t.Errorf("a tenant that the project may name: error is %v", err)
	}
	must(t, b.RemoveUnreadable(NamespaceProjects, "bad"))
	must(t, b.RemoveTenant("z"))

	b.put(t, nodeKey("n"), map[string][]byte{labelPrefix + "zone": {0xff}})
	nodes, err := b.NodeSettings()
	must(t, err)
	n := nodes["n"]
	for _, s := range []Selector{{Require: map[string]string{"a": "b"}}, {Forbid: map[string]string{"zone": "eu"}}} {
		if s.Refuses(n.Labels) != "its labels cannot be read" {
			t.Errorf("%+v takes the node", s)
		}
	}
	if !n.Unreadable || !n.Cordoned || (Selector{}).Refuses(n.Labels) != "" || CheckLabel(labelUnreadable, "true") == nil {
		t.Errorf("the node is %+v", n)
	}
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
