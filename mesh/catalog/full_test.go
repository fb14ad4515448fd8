package catalog

import (
	"fmt"
	"testing"

	"llmgw/crdt"
)

// TestARowThatIsFullSaysSo: names that were removed keep their cells. What has its cell
// can still be changed, and a name that was there comes back.
func TestARowThatIsFullSaysSo(t *testing.T) {
	b := quickBox(t)
	must(t, b.CreateModel(smol()))
	key := modelKey("smollm2")
	removed := map[string][]byte{}
	for i := len(b.row(t, key).Cells); i < maxNames; i++ {
		removed[fmt.Sprint(aliasPrefix, "old", i)] = nil
	}
	b.put(t, key, removed)
	before := b.row(t, key)
	alias := func(name string) error {
		return b.UpdateModel("smollm2", func(m *Model) error { m.Aliases = append(m.Aliases, name); m.Limits.Context = 7; return nil })
	}
	refused[*FullError](t, alias("new"), "row models/smollm2 has no place for another name: it has had about 1000, those that were removed among them")
	if !b.row(t, key).Equal(before) {
		t.Error("what was refused was written in part")
	}
	must(t, alias("old500"))
	m, err := b.Model("smollm2")
	must(t, err)
	equal(t, "aliases", []string{"Small", "old500"}, m.Aliases)
	if m.Limits.Context != 7 {
		t.Errorf("got %+v", m.Limits)
	}
	// A merge may bring more than one box may write; such a row is still edited.
	row := b.row(t, key)
	for i := range 3 {
		row.Cells[fmt.Sprint(aliasPrefix, "beyond", i)] = crdt.Cell{At: 1, By: 9}
	}
	_, err = b.store.Merge([]crdt.Item{{Key: key, Row: row}})
	must(t, err)
	must(t, b.UpdateModel("smollm2", func(m *Model) error { m.Limits.Context = 8; return nil }))
	refused[*FullError](t, alias("new"), "row models/smollm2 has no place for another name: it has had about 1000, those that were removed among them")
}
