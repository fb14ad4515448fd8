package catalog

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"llmgw/crdt"

	"pgregory.net/rapid"
)

// document is a kind of document, as the laws below need it.
type document[T any] struct {
	key    func(id string) crdt.Key
	create func(b box, id string) error
	update func(b box, id string, fn func(*T) error) error
	read   func(b box, id string) (T, error)
	remove func(b box, id string) error // nil: it is never removed
	edits  []func(*T)                   // each of another setting
}

func find[T any](all []T, err error, is func(T) bool) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i], nil
	}
	return none, ErrNotFound
}

// startRules have something to change and something to take away.
func startRules() Rules {
	return Rules{Limits: RateLimits{MetricRequests: 1, MetricTokens: 2}, Budgets: []Budget{{PeriodDay, UnitTokens, 3, false}, {PeriodMonth, UnitMicros, 4, true}}}
}

func ruleEdits[T any](of func(*T) *Rules) []func(*T) {
	return []func(*T){
		func(d *T) { of(d).Limits[MetricRequests] = 600 },
		func(d *T) { of(d).Limits[MetricParallel] = 0 },
		func(d *T) { delete(of(d).Limits, MetricTokens) },
		func(d *T) { of(d).SetBudget(Budget{PeriodTotal, UnitTokens, crdt.MaxAmount, true}) },
		func(d *T) { of(d).SetBudget(Budget{PeriodDay, UnitTokens, 3, true}) },
		func(d *T) { of(d).DropBudget(PeriodMonth, UnitMicros) },
	}
}

func modelDocument() document[Model] {
	return document[Model]{
		key: modelKey,
		create: func(b box, id string) error {
			m := smol()
			m.Name, m.Aliases = id, []string{"one", "two"}
			m.Labels = Selector{Require: map[string]string{"zone": "eu"}}
			m.Profiles = []Profile{{ID: "a", Engine: EngineSim, Args: []string{"-x"}}, {ID: "b", Engine: EngineSim}}
			return b.CreateModel(m)
		},
		update: func(b box, id string, fn func(*Model) error) error { return b.UpdateModel(id, fn) },
		read:   func(b box, id string) (Model, error) { return b.Model(id) },
		remove: func(b box, id string) error { return b.DeleteModel(id) },
		edits: []func(*Model){
			func(m *Model) { m.Scale = Scale{1, 2, time.Minute} },
			func(m *Model) { m.Limits.Context = 100 },
			func(m *Model) { m.Pin = "p" },
			func(m *Model) { m.State = ModelStopped },
			func(m *Model) { m.Declared = Declaration{"n", "/f"} },
			func(m *Model) { m.Source.Revision = "2" },
			func(m *Model) { m.Labels.Require["zone"] = "us" },
			func(m *Model) { m.Aliases = slices.DeleteFunc(m.Aliases, func(a string) bool { return a == "one" }) },
			func(m *Model) { m.Aliases = append(m.Aliases, "zero") },
			func(m *Model) {
				m.Profiles = slices.DeleteFunc(m.Profiles, func(p Profile) bool { return p.ID == "b" })
			},
			func(m *Model) { m.Profiles = append(m.Profiles, Profile{ID: "z", Engine: EngineSim}) },
			func(m *Model) { m.Profiles[0].Args[0] = "-y" },
		},
	}
}

func keyDocument() document[APIKey] {
	return document[APIKey]{
		key: func(id string) crdt.Key { return crdt.NewKey(NamespaceKeys, id) },
		create: func(b box, id string) error {
			return b.PutAPIKey(APIKey{ID: id, Name: id, Hash: []byte{1}, Models: []string{"a*", "b"}, Nodes: Selector{Forbid: map[string]string{"zone": "eu"}},
				Origins: []string{"*"}, Rules: startRules()})
		},
		update: func(b box, id string, fn func(*APIKey) error) error { return b.UpdateAPIKey(id, fn) },
		read:   func(b box, id string) (APIKey, error) { return b.APIKey(id) },
		remove: func(b box, id string) error { return b.RevokeAPIKey(id) },
		edits: append(ruleEdits(func(k *APIKey) *Rules { return &k.Rules }),
			func(k *APIKey) { k.Models[0] = "c*" },
			func(k *APIKey) { k.Nodes.Forbid["zone"] = "us" },
			func(k *APIKey) { k.Expires = 99 },
			func(k *APIKey) { k.Origins = nil }),
	}
}

func tenantDocument() document[Tenant] {
	return document[Tenant]{
		key:    func(id string) crdt.Key { return crdt.NewKey(NamespaceTenants, id) },
		create: func(b box, id string) error { _, err := b.CreateTenant(Tenant{id, startRules()}); return err },
		update: func(b box, id string, fn func(*Tenant) error) error { return b.UpdateTenant(id, fn) },
		read: func(b box, id string) (Tenant, error) {
			all, err := b.Tenants()
			return find(all, err, func(t Tenant) bool { return t.ID == id })
		},
		remove: func(b box, id string) error { return b.RemoveTenant(id) },
		edits:  ruleEdits(func(t *Tenant) *Rules { return &t.Rules }),
	}
}

func projectDocument() document[Project] {
	return document[Project]{
		key: func(id string) crdt.Key { return crdt.NewKey(NamespaceProjects, id) },
		create: func(b box, id string) error {
			_, err := b.CreateProject(Project{ID: id, Tenant: "acme", Rules: startRules()})
			return err
		},
		update: func(b box, id string, fn func(*Project) error) error { return b.UpdateProject(id, fn) },
		read: func(b box, id string) (Project, error) {
			all, err := b.Projects()
			return find(all, err, func(p Project) bool { return p.ID == id })
		},
		remove: func(b box, id string) error { return b.RemoveProject(id) },
		edits:  append(ruleEdits(func(p *Project) *Rules { return &p.Rules }), func(p *Project) { p.Tenant = "" }),
	}
}

func nodeDocument() document[NodeSettings] {
	read := func(b box, id string) (NodeSettings, error) {
		all, err := b.NodeSettings()
		if s, ok := all[id]; ok && !s.Unreadable || err != nil {
			return s, err
		}
		return NodeSettings{}, ErrNotFound
	}
	return document[NodeSettings]{
		key: nodeKey,
		create: func(b box, id string) error {
			return b.UpdateNode(id, func(s *NodeSettings) error {
				s.Labels = map[string]string{"zone": "eu", "rack": "1"}
				s.CordonedDevices = []string{"GPU-1", "GPU-2"}
				return nil
			})
		},
		update: func(b box, id string, fn func(*NodeSettings) error) error { return b.UpdateNode(id, fn) },
		read:   read,
		edits: []func(*NodeSettings){
			func(s *NodeSettings) { s.Location = "cellar" },
			func(s *NodeSettings) { s.Cordoned = true },
			func(s *NodeSettings) { s.Draining = true },
			func(s *NodeSettings) { s.Labels["zone"] = "us" },
			func(s *NodeSettings) { s.Labels["new"] = "" },
			func(s *NodeSettings) { delete(s.Labels, "rack") },
			func(s *NodeSettings) { s.CordonedDevices = append(s.CordonedDevices, "GPU-3") },
			func(s *NodeSettings) {
				s.CordonedDevices = slices.DeleteFunc(s.CordonedDevices, func(d string) bool { return d == "GPU-1" })
			},
		},
	}
}

func providerDocument() document[Provider] {
	return document[Provider]{
		key: func(id string) crdt.Key { return crdt.NewKey(NamespaceProviders, id) },
		create: func(b box, id string) error {
			return b.SetProvider(id, func(p *Provider) error {
				p.URL, p.Keys, p.Models = "https://api.example", KeysOf([]string{"sk-1", "sk-2"}), []ProviderModel{{Pattern: "a*"}}
				p.Native, p.Priority = []Ability{AbilityMessages}, 7
				return nil
			})
		},
		update: func(b box, id string, fn func(*Provider) error) error { return b.SetProvider(id, fn) },
		read:   func(b box, id string) (Provider, error) { return b.Provider(id) },
		remove: func(b box, id string) error { return b.RemoveProvider(id) },
		edits: []func(*Provider){
			func(p *Provider) { p.URL, p.Private = "https://api.example/v2", true },
			func(p *Provider) { p.Insecure = true },
			func(p *Provider) { p.Priority = 0 },
			func(p *Provider) { p.Held = HeldLast },
			func(p *Provider) { p.Parallel = 9 },
			func(p *Provider) { p.Models[0].Pattern = "b*" },
			func(p *Provider) { p.Native[0] = AbilityTokenize },
			func(p *Provider) { p.Sponsor = "12D3" },
			func(p *Provider) { p.Keys = append(p.Keys, KeysOf([]string{"sk-3"})...) },
		},
	}
}

func settingsDocument() document[map[string]string] {
	set := func(key, value string) func(*map[string]string) {
		return func(s *map[string]string) { (*s)[key] = value }
	}
	return document[map[string]string]{
		key: func(string) crdt.Key { return crdt.NewKey(NamespaceSettings, settingsRow) },
		create: func(b box, _ string) error {
			return b.UpdateSettings(func(s map[string]string) error {
				clear(s)
				s["log.level"], s["router.queue_time"], s["discovery.dht"] = "warn", "5s", "true"
				return nil
			})
		},
		update: func(b box, _ string, fn func(*map[string]string) error) error {
			return b.UpdateSettings(func(s map[string]string) error { return fn(&s) })
		},
		read: func(b box, _ string) (map[string]string, error) { return b.Settings() },
		edits: []func(*map[string]string){
			set("log.level", "debug"), set("discovery.dht", "false"), set("metrics.public", "true"), set("router.max_inflight", "7"),
			set("router.load_wait", "1m0s"), set("discovery.dht_bootstrap", "a.example:1,b.example:2"), set("router.trusted_proxies", ""),
			func(s *map[string]string) { delete(*s, "router.queue_time") },
		},
	}
}

// documents are all kinds that are edited, by name.
func documents() map[string]laws {
	return map[string]laws{
		"model": modelDocument(), "API key": keyDocument(), "tenant": tenantDocument(), "project": projectDocument(),
		"node": nodeDocument(), "provider": providerDocument(), "settings": settingsDocument(),
	}
}

// laws hold for each kind of document.
type laws interface {
	bothSurvive(t *testing.T)
	writesLittle(t *testing.T)
	removalWins(t *testing.T)
	refusalWritesNothing(t *testing.T)
	keepsUnknown(t *testing.T)
	unreadable(t *testing.T)
}

func TestLawsOfDocuments(t *testing.T) {
	for name, d := range documents() {
		t.Run(name+"/edits of different settings survive", d.bothSurvive)
		t.Run(name+"/an edit writes what it changes", d.writesLittle)
		t.Run(name+"/a removal beats edits", d.removalWins)
		t.Run(name+"/a refused edit writes nothing", d.refusalWritesNothing)
		t.Run(name+"/an edit keeps unknown cells", d.keepsUnknown)
		t.Run(name+"/what cannot be read is not edited", d.unreadable)
	}
}

// twoBoxes have the tenant that a project of these tests counts for.
func twoBoxes(t *testing.T) (a, b box) {
	a, b = quickBox(t), quickBox(t)
	_, err := a.CreateTenant(Tenant{ID: "acme"})
	must(t, err)
	exchange(t, a, b)
	return a, b
}

func (d document[T]) edit(t tb, b box, id string, edits ...func(*T)) {
	t.Helper()
	for _, edit := range edits {
		must(t, d.update(b, id, func(v *T) error { edit(v); return nil }))
	}
}

// Two people change different settings of one document on two boxes: both boxes have all changes after
// a merge, whatever the order, and merging again changes nothing.
func (d document[T]) bothSurvive(t *testing.T) {
	a, b := twoBoxes(t)
	rapid.Check(t, func(t *rapid.T) {
		id := fresh()
		must(t, d.create(a, id))
		send(t, a, b, d.key(id))
		want, err := d.read(a, id)
		must(t, err)
		var onA, onB []func(*T)
		for i, edit := range d.edits {
			switch rapid.IntRange(0, 2).Draw(t, fmt.Sprint("edit ", i)) {
			case 0:
				continue
			case 1:
				onA = append(onA, edit)
			case 2:
				onB = append(onB, edit)
			}
			edit(&want)
		}
		if len(onA) > 0 {
			d.edit(t, a, id, rapid.Permutation(onA).Draw(t, "order on a")...)
		}
		if len(onB) > 0 {
			d.edit(t, b, id, rapid.Permutation(onB).Draw(t, "order on b")...)
		}
		first, second := a, b
		if rapid.Bool().Draw(t, "b first") {
			first, second = b, a
		}
		send(t, first, second, d.key(id))
		send(t, second, first, d.key(id))
		if send(t, first, second, d.key(id)) || send(t, second, first, d.key(id)) {
			t.Error("merging again changed something")
		}
		for name, side := range map[string]box{"a": a, "b": b} {
			got, err := d.read(side, id)
			must(t, err)
			equal(t, "on "+name, sorted(want), sorted(got))
		}
	})
}

// sorted puts what a model or node lists into the order in which it is read, and leaves out when the
// source was written.
func sorted(v any) any {
	switch v := v.(type) {
	case Model:
		v.Aliases, v.Created = slices.Sorted(slices.Values(v.Aliases)), 0
		return v
	case NodeSettings:
		v.CordonedDevices = slices.Sorted(slices.Values(v.CordonedDevices))
		return v
	}
	return v
}

// Each edit writes the cells that it changes and no others, and an edit that changes nothing writes nothing.
func (d document[T]) writesLittle(t *testing.T) {
	b, _ := twoBoxes(t)
	id := fresh()
	must(t, d.create(b, id))
	for i, edit := range d.edits {
		before := b.row(t, d.key(id))
		d.edit(t, b, id, edit)
		after := b.row(t, d.key(id))
		if n := changedCells(before, after); n != 1 {
			t.Errorf("edit %d wrote %d cells", i, n)
		}
	}
	before := b.store.Sequence()
	d.edit(t, b, id, func(*T) {})
	if b.store.Sequence() != before {
		t.Error("an edit of nothing was written")
	}
}

func changedCells(before, after crdt.Row) int {
	n := 0
	for name, cell := range after.Cells {
		if had, ok := before.Cells[name]; !ok || had.Compare(cell) != 0 {
			n++
		}
	}
	return n
}

// A removal beats each edit that was made without knowing of it, and a name that is used again begins anew.
func (d document[T]) removalWins(t *testing.T) {
	if d.remove == nil {
		t.Skip("it is never removed")
	}
	a, b := twoBoxes(t)
	id := fresh()
	must(t, d.create(a, id))
	send(t, a, b, d.key(id))
	must(t, d.remove(a, id))
	d.edit(t, b, id, d.edits...)
	exchange(t, a, b)
	for name, side := range map[string]box{"a": a, "b": b} {
		_, err := d.read(side, id)
		notFound(t, "on "+name, err)
		notFound(t, "removed again on "+name, d.remove(side, id))
	}
}

var errNo = errors.New("no")

// What fn refuses is not written, and its error comes through.
func (d document[T]) refusalWritesNothing(t *testing.T) {
	b, _ := twoBoxes(t)
	id := fresh()
	must(t, d.create(b, id))
	before := b.row(t, d.key(id))
	for _, edit := range d.edits {
		err := d.update(b, id, func(v *T) error { edit(v); return errNo })
		if !errors.Is(err, errNo) {
			t.Errorf("error is %v", err)
		}
	}
	if after := b.row(t, d.key(id)); !after.Equal(before) {
		t.Error("a refused edit was written")
	}
}

// Cells that this version does not know stay as they are when it edits the document.
func (d document[T]) keepsUnknown(t *testing.T) {
	a, b := twoBoxes(t)
	id := fresh()
	must(t, d.create(a, id))
	unknown := map[string][]byte{"future": {0xff}, "limit/joules": enc(t, 5), "alia/x": enc(t, 6), "x": enc(t, map[string]int{"a": 1})}
	a.put(t, d.key(id), unknown)
	d.edit(t, a, id, d.edits...)
	send(t, a, b, d.key(id))
	for name, side := range map[string]box{"a": a, "b": b} {
		row := side.row(t, d.key(id))
		for cell, value := range unknown {
			if string(row.Cells[cell].Value) != string(value) {
				t.Errorf("on %s the cell %s is %x", name, cell, row.Cells[cell].Value)
			}
		}
	}
}

// A document of which a cell cannot be read is left as it is by edits, and can be removed. Settings and marks
// are the exception: what cannot be used of them stops nobody.
func (d document[T]) unreadable(t *testing.T) {
	b, _ := twoBoxes(t)
	first := fresh()
	must(t, d.create(b, first))
	for _, cell := range b.row(t, d.key(first)).Names() {
		id := fresh()
		must(t, d.create(b, id))
		b.put(t, d.key(id), map[string][]byte{cell: {0xff}})
		before := b.row(t, d.key(id))
		tolerant := before.Cells["log.level"].Value != nil || cell == cellMade
		if _, err := d.read(b, id); (err == nil) != tolerant {
			t.Errorf("with %s spoiled: error is %v", cell, err)
		}
		if err := d.update(b, id, func(v *T) error { d.edits[0](v); return nil }); (err == nil) != tolerant {
			t.Errorf("edited with %s spoiled: error is %v", cell, err)
		}
		if n := changedCells(before, b.row(t, d.key(id))); n > 0 && !tolerant {
			t.Errorf("with %s spoiled %d cells were written", cell, n)
		}
		if d.remove != nil {
			must(t, d.remove(b, id))
		}
	}
}
