package catalog

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"llmgw/crdt"
)

// FuzzRows reads two cells of a row that a peer sends as each kind of document, and the same again from
// what was read: it comes to the same, and no check panics.
func FuzzRows(f *testing.F) {
	for _, s := range shelves() {
		for cell, v := range s.cells {
			f.Add("x", cell, enc(f, v), cell+"x", enc(f, v))
		}
	}
	for _, value := range garbage() {
		f.Add("", "alias/", value, "profile/", []byte{0xf6})
	}
	f.Add("0", "target", enc(f, providerTarget{Private: true}), "0", []byte("0"))
	f.Add("7", "alias/a", enc(f, "A"), "profile/p", enc(f, Profile{ID: "q", Args: []string{"-x"}}))
	f.Fuzz(func(t *testing.T, id, one string, oneValue []byte, two string, twoValue []byte) {
		if !utf8.ValidString(id) || crdt.ValidateName(one) != nil || crdt.ValidateName(two) != nil {
			t.Skip("a name that is none")
		}
		row := crdt.Row{Length: 1, Cells: map[string]crdt.Cell{one: {At: 1, Value: oneValue}, two: {At: 2, Value: twoValue}}}
		IsDeclared(row)
		again(t, func(row crdt.Row) (map[string]any, any, error) {
			m, err := modelFromRow(modelKey(id), row)
			m.Created, m.Unloaded = 0, 0
			_ = CheckModel(m)
			return m.cells(), m, err
		}, row)
		again(t, func(row crdt.Row) (map[string]any, any, error) {
			k, err := keyFromRow(id, row)
			_ = k.check()
			cells := k.cells()
			cells[cellRecord] = k
			return cells, k, err
		}, row)
		again(t, func(row crdt.Row) (map[string]any, any, error) {
			p, err := projectFromRow(id, row)
			return p.cells(), p, err
		}, row)
		again(t, func(row crdt.Row) (map[string]any, any, error) {
			p, err := providerFromRow(id, row)
			_ = p.Check()
			return p.cells(), p, err
		}, row)
		again(t, func(row crdt.Row) (map[string]any, any, error) {
			s, err := nodeSettingsFromRow(nodeKey(id), row)
			cells := labelCells(s.Labels)
			for cell, v := range deviceCells(s.CordonedDevices) {
				cells[cell] = v
			}
			cells[cellLocation], cells[cellCordon], cells[cellDrain] = s.Location, s.Cordoned, s.Draining
			return cells, s, err
		}, row)
		again(t, func(row crdt.Row) (map[string]any, any, error) {
			r, err := routeFromRow(crdt.NewKey(NamespaceRoutes, id), row)
			_ = CheckRoute(r)
			return map[string]any{cellRecord: r}, r, err
		}, row)
		again(t, func(row crdt.Row) (map[string]any, any, error) {
			a, err := assignmentFromRow(crdt.NewKey(NamespaceAssignments, "m", id), row)
			return map[string]any{cellOwner: a}, a, err
		}, row)
		again(t, func(row crdt.Row) (map[string]any, any, error) {
			cells := map[string]any{}
			said := settingsFromRow(row)
			values, err := settingCells(said)
			must(t, err) // what is read can be set
			for key, v := range values {
				cells[key] = v
			}
			return cells, said, nil
		}, row)
	})
}

// again reads a row, writes what was read into a bare one, and reads that.
func again(t *testing.T, read func(crdt.Row) (map[string]any, any, error), row crdt.Row) {
	t.Helper()
	cells, want, err := read(row)
	if err != nil {
		return
	}
	_, got, err := read(rowOf(t, cells))
	must(t, err)
	equal(t, "read again", want, got)
}

// FuzzKeys takes any bytes as the key of a row.
func FuzzKeys(f *testing.F) {
	for _, s := range shelves() {
		f.Add([]byte(s.key))
	}
	f.Add([]byte("\x06models\x80\x00"))
	f.Add([]byte("\x0bassignments\x01m\x02+7"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		key := crdt.Key(raw)
		if m, err := modelFromRow(key, crdt.Row{}); err == nil && (crdt.NewKey(key.Namespace(), m.ID) != key || m.Name != m.ID) {
			t.Errorf("%x is the model %q", raw, m.ID)
		}
		if a, err := assignmentFromRow(key, crdt.Row{}); err == nil && crdt.NewKey(key.Namespace(), a.Model, fmt.Sprint(a.Slot)) != key {
			t.Errorf("%x is slot %d of %q", raw, a.Slot, a.Model)
		}
		if p, err := priceFromRow(key, crdt.Row{}); err == nil && crdt.NewKey(key.Namespace(), p.Model, p.Provider) != key {
			t.Errorf("%x is the price of %q at %q", raw, p.Model, p.Provider)
		}
		if s, err := nodeSettingsFromRow(key, crdt.Row{}); err == nil && crdt.NewKey(key.Namespace(), s.Peer) != key {
			t.Errorf("%x is of the node %q", raw, s.Peer)
		}
		if r, err := routeFromRow(key, crdt.Row{}); err == nil && crdt.NewKey(key.Namespace(), r.ID) != key {
			t.Errorf("%x is the route %q", raw, r.ID)
		}
	})
}

// FuzzSettings takes any text as the value of each setting: what is taken is spelled in one way and can be used.
func FuzzSettings(f *testing.F) {
	for _, text := range []string{"true", "0", "1h", "a:1,[::1]:2", "/ip4/192.0.2.1/tcp/1", "10.0.0.0/8,::ffff:1.2.3.4", "warn", "fe80::%a/b", " , ", "\xff:1", "::%\xb7"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range MeshSettings() {
			once, err := s.Check(text)
			if err != nil {
				continue
			}
			if twice, err := s.Check(once); err != nil || twice != once {
				t.Errorf("%s: %q is spelled %q, then %q, %v", s.Key, text, once, twice, err)
			}
			v, err := s.parse(text)
			must(t, err)
			if got, ok := s.read(rowOf(t, map[string]any{s.Key: v})); !ok || got != once {
				t.Errorf("%s: %q is read as %q, %v", s.Key, once, got, ok)
			}
			if s.Kind != SettingNetworks {
				continue
			}
			for _, network := range SplitList(once) {
				if p, err := ParseNetwork(network); err != nil || p != p.Masked() || p.Addr().Is4In6() && p.Bits() >= 96 {
					t.Errorf("%q is the network %s, %v", network, p, err)
				}
			}
		}
	})
}

// FuzzNames takes any text as each kind of name.
func FuzzNames(f *testing.F) {
	for _, text := range []string{"", "a/b:c", "A@b", "*:*", "../x", "\u212A", "a\x00", "k=v", strings.Repeat("x", 289)} {
		f.Add(text, "v")
	}
	f.Fuzz(func(t *testing.T, name, other string) {
		if CheckName(name) == nil {
			if CheckName(FoldName(name)) != nil || strings.ContainsAny(name, "@* \n\\") || checkPattern(name) != nil || !MatchPattern(name, name) {
				t.Errorf("%q is a name", name)
			}
			if m, ok := Resolve([]Model{{ID: FoldName(name)}}, strings.ToUpper(name)); !ok || m.ID != FoldName(name) {
				t.Errorf("%q is not found", name)
			}
		}
		if id, err := GroupID("tenant", name); err == nil {
			if again, err := GroupID("tenant", id); err != nil || again != id || CheckName(id) != nil && id != "." && id != ".." {
				t.Errorf("%q is the group %q, then %q, %v", name, id, again, err)
			}
		}
		if CheckLabel(name, other) == nil {
			if strings.ContainsAny(name+other, "=, \n") || (Selector{Require: map[string]string{name: other}}).Refuses(map[string]string{name: other}) != "" {
				t.Errorf("%q=%q is a label", name, other)
			}
		}
		if MatchPattern(name, other) && !MatchPattern(name+"*", other) || !MatchPattern("*", name) || !MatchPattern("*"+other+"*", name+other) && !strings.Contains(other, "*") {
			t.Errorf("patterns of %q and %q", name, other)
		}
		if m, ok := (HostStatus{Models: []HostModel{{Name: name}}}).Model(name); !ok || m.Name != name {
			t.Errorf("a host's %q is not found", name)
		}
	})
}

// FuzzURLs takes any text as the address of a provider and as the origin of a page.
func FuzzURLs(f *testing.F) {
	for _, text := range []string{"https://a.example/v1", "http://[::1]:8000", "https://a.example:443", "HTTPS://A", "https://a@b", "https:a", "app://x", "https://0x7f.1", "https://[fe80::1%25x]", "https://a%2e", "http://0#", "http://0?"} {
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, private bool) {
		p := Provider{ID: "p", URL: text, Private: private}
		if p.Check() == nil {
			u, err := url.Parse(p.Base())
			must(t, err)
			if u.Scheme != "https" && !(private && u.Scheme == "http") || u.User != nil || u.RawQuery != "" || u.Path == "" || strings.HasSuffix(p.Base(), "/") {
				t.Errorf("%q has the base %q", text, p.Base())
			}
			if Origin(p.Base()) != Origin(text) || Origin(text) == "" || strings.ContainsAny(text, " \r\n\t") {
				t.Errorf("%q is at %q and %q", text, Origin(text), Origin(p.Base()))
			}
			if addr, err := netip.ParseAddr(u.Hostname()); err == nil && RefuseAddress(addr, private) != "" {
				t.Errorf("%q is at %s", text, addr)
			}
		}
		if checkOrigin(text) == nil && text != "*" {
			u, err := url.Parse(text)
			must(t, err)
			if text != u.Scheme+"://"+u.Host || u.Port() != "" && slices.Contains([]string{"https443", "http80"}, u.Scheme+u.Port()) {
				t.Errorf("%q is an origin", text)
			}
		}
	})
}
