package node

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// spoil writes into a cell what no version reads, as a later one or a faulty member might.
func (d daemon) spoil(t *testing.T, cell, namespace string, parts ...string) {
	t.Helper()
	_, err := d.store.Update(func(tx *store.Tx) error { return tx.Set(crdt.NewKey(namespace, parts...), cell, []byte{0xff}) })
	if err != nil {
		t.Fatal(err)
	}
}

func (d daemon) problem(t *testing.T, about string) (ui.Problem, bool) {
	t.Helper()
	s, err := d.client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Problems, func(p ui.Problem) bool { return strings.Contains(p.Text, about) })
	if i < 0 {
		return ui.Problem{}, false
	}
	return s.Problems[i], true
}

// TestARowThatCannotBeReadFailsNothingElse: what runs of it goes on, others are loaded, a
// status names it, and what it names removes it.
func TestARowThatCannotBeReadFailsNothingElse(t *testing.T) {
	d := start(t, t.TempDir())
	for _, name := range []string{"bad", "good"} {
		d.pull(t, name)
	}
	if _, err := d.client.Load(t.Context(), ui.LoadRequest{Model: "bad"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is loaded", func() bool { return d.serving("bad") })
	key, err := d.client.NewKey(t.Context(), ui.KeyRequest{Name: "k"})
	if err != nil {
		t.Fatal(err)
	}
	infer, err := d.client.NewKey(t.Context(), ui.KeyRequest{Name: "another"})
	if err != nil {
		t.Fatal(err)
	}
	err = d.catalog.SetProvider("all", func(p *catalog.Provider) error {
		p.URL, p.Models = "https://provider.example/v1", []catalog.ProviderModel{{Pattern: "*"}, {Pattern: "by-another-name"}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.catalog.UpdateModel("bad", func(m *catalog.Model) error { m.Aliases = []string{"by-another-name"}; return nil }); err != nil {
		t.Fatal(err)
	}
	d.spoil(t, "scale", catalog.NamespaceModels, "bad")
	d.spoil(t, "owner", catalog.NamespaceAssignments, "good", "1")
	d.spoil(t, "expires", catalog.NamespaceKeys, key.ID)
	for _, namespace := range []string{catalog.NamespaceTenants, catalog.NamespaceProjects} {
		d.spoil(t, "limit/requests", namespace, "x")
	}
	d.spoil(t, "target", catalog.NamespaceProviders, "x")
	d.spoil(t, "record", catalog.NamespaceRoutes, "x")
	d.spoil(t, "input", catalog.NamespacePrices, "x", "")
	d.spoil(t, "location", catalog.NamespaceNodes, "12D3KooWnobody")

	if _, err := d.client.Load(t.Context(), ui.LoadRequest{Model: "good"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another is loaded", func() bool { return d.serving("good") })
	if !d.serving("bad") {
		t.Error("what ran of a model that cannot be read has ended")
	}
	if status, _ := d.ask(t, key.Key, http.MethodGet, "/v1/models", ""); status != http.StatusUnauthorized {
		t.Errorf("a key that cannot be read gets %d", status)
	}
	for _, name := range []string{"Bad", "by-another-name", "x"} {
		status, answer := d.ask(t, infer.Key, http.MethodPost, "/v1/completions", `{"model":"`+name+`","prompt":"x"}`)
		if status != http.StatusServiceUnavailable || !strings.Contains(answer, "cannot read its entry") {
			t.Errorf("a request for %s gets %d: %s", name, status, answer)
		}
	}
	if _, list := d.ask(t, infer.Key, http.MethodGet, "/v1/models", ""); !strings.Contains(list, `"good"`) || strings.Contains(list, `"by-another-name"`) {
		t.Errorf("listed: %s", list)
	}
	if _, err := d.client.Load(t.Context(), ui.LoadRequest{Model: "bad"}); err == nil || !strings.Contains(err.Error(), "row models/bad cannot be read") {
		t.Errorf("load of it: %v", err)
	}
	if _, ok := d.problem(t, "4 more rows cannot be read"); !ok {
		t.Error("not all rows are counted")
	}
	if doc := d.export(t); !strings.Contains(doc, "good") {
		t.Errorf("exported: %s", doc)
	}

	for _, remove := range []func() error{
		func() error { return d.client.RevokeKey(t.Context(), key.ID) },
		func() error { return d.client.RemoveRoute(t.Context(), "x") },
		func() error { return d.client.RemoveProvider(t.Context(), "x") },
		func() error { _, err := d.client.RemoveProject(t.Context(), ui.Named{Name: "x"}); return err },
		func() error { _, err := d.client.RemoveTenant(t.Context(), ui.Named{Name: "x"}); return err },
	} {
		if err := remove(); err != nil {
			t.Error(err)
		}
	}
	p, ok := d.problem(t, "row models/bad cannot be read: decode cell \"scale\"")
	if !ok || !strings.Contains(p.Text, "written by this box") || !strings.Contains(p.Fix, "llmgw models rm bad --state-dir") {
		t.Errorf("got %+v", p)
	}
	if _, err := d.client.RemoveModel(t.Context(), ui.RemoveModelRequest{Model: "Bad"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what ran of it ends with it", func() bool { return !d.serving("bad") })
	if _, ok := d.problem(t, "models/bad"); ok {
		t.Error("it is named after it was removed")
	}
}

// TestWhatRemovesARowThatCannotBeRead is a command that takes its key.
func TestWhatRemovesARowThatCannotBeRead(t *testing.T) {
	a := admin{&Node{cfg: Config{StateDir: DefaultStateDir()}}}
	const upgrade = "upgrade llmgw here, if another box runs a later one"
	for want, key := range map[string]crdt.Key{
		", or remove it: llmgw models rm org/m":             crdt.NewKey(catalog.NamespaceModels, "org/m"),
		", or remove it: llmgw keys revoke k":               crdt.NewKey(catalog.NamespaceKeys, "k"),
		", or remove it: llmgw prices unset m":              crdt.NewKey(catalog.NamespacePrices, "m", ""),
		", or remove it: llmgw prices unset --provider x":   crdt.NewKey(catalog.NamespacePrices, "", "x"),
		", or remove it: llmgw prices unset --provider x m": crdt.NewKey(catalog.NamespacePrices, "m", "x"),
	} {
		if got := a.removal(key); got != upgrade+want {
			t.Errorf("%s: %s", key, got)
		}
	}
	for _, key := range []crdt.Key{"", crdt.NewKey(catalog.NamespaceModels), crdt.NewKey(catalog.NamespaceModels, "a", "b"), crdt.NewKey(catalog.NamespaceModels, "; rm -rf /"), crdt.NewKey(catalog.NamespaceAssignments, "m", "0")} {
		if got := a.removal(key); got != upgrade {
			t.Errorf("%s: %s", key, got)
		}
	}
}
