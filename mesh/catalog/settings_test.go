package catalog

import (
	"errors"
	"testing"

	"llmgw/crdt"
	"llmgw/crdt/store"

	"github.com/google/go-cmp/cmp"
)

func put(key, value string) func(map[string]string) error {
	return func(s map[string]string) error { s[key] = value; return nil }
}

func TestSettingsOfTwoSidesBothSurvive(t *testing.T) {
	a, b := newBox(t), newBox(t)
	must(t, a.UpdateSettings(put("discovery.lan", "FALSE")))
	must(t, b.UpdateSettings(put("log.level", "debug")))
	exchange(t, a, b)
	want := map[string]string{"discovery.lan": "false", "log.level": "debug"}
	for name, box := range map[string]box{"a": a, "b": b} {
		got, err := box.Settings()
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("on %s: %s", name, diff)
		}
	}
	must(t, a.UpdateSettings(func(s map[string]string) error { delete(s, "discovery.lan"); return nil }))
	exchange(t, a, b)
	got, err := b.Settings()
	must(t, err)
	if diff := cmp.Diff(map[string]string{"log.level": "debug"}, got); diff != "" {
		t.Errorf("after unset: %s", diff)
	}
}

func TestSettingsAreCheckedAtTheWrite(t *testing.T) {
	b := newBox(t)
	for key, value := range map[string]string{"discovery.lan": "maybe", "log.level": "loud", "no.such": "1", "discovery.dht_bootstrap": "192.0.2.7:8771,nowhere"} {
		err := b.UpdateSettings(func(s map[string]string) error { s["discovery.auto_join"], s[key] = "false", value; return nil })
		refused := (*SettingError)(nil)
		if !errors.As(err, &refused) || refused.Key != key {
			t.Errorf("%s = %s: got %v", key, value, err)
		}
	}
	if got, err := b.Settings(); err != nil || len(got) != 0 {
		t.Errorf("a refused write left %v, %v", got, err)
	}
}

func TestASettingOfAnotherVersionIsKeptAndNotUsed(t *testing.T) {
	b := newBox(t)
	key := crdt.NewKey(NamespaceSettings, settingsRow)
	must(t, b.UpdateSettings(put("log.level", "warn")))
	_, err := b.store.Update(func(tx *store.Tx) error {
		for cell, v := range map[string]any{"discovery.lan": "by moonlight", "future.key": 7} {
			if err := set(tx, key, cell, v); err != nil {
				return err
			}
		}
		return nil
	})
	must(t, err)
	must(t, b.UpdateSettings(put("log.level", "info")))
	got, err := b.Settings()
	must(t, err)
	if diff := cmp.Diff(map[string]string{"log.level": "info"}, got); diff != "" {
		t.Error(diff)
	}
	row, _, err := b.store.Get(key)
	must(t, err)
	if len(row.Cells["future.key"].Value) == 0 || len(row.Cells["discovery.lan"].Value) == 0 {
		t.Error("what this version does not know was dropped")
	}
}

func TestEverySettingIsSpelledAndExplained(t *testing.T) {
	for _, s := range MeshSettings() {
		value := map[SettingKind]string{SettingBool: "true", SettingDuration: "90m", SettingAddresses: " 192.0.2.7:8771 , box.example:8771,192.0.2.7:8771", SettingChoice: "", SettingNetworks: "10.0.0.0/8, 192.0.2.7", SettingNumber: " 012 "}[s.Kind]
		if s.Kind == SettingChoice {
			value = s.Choices[0]
		}
		text, err := s.Check(value)
		if err != nil || text == "" || s.Help == "" {
			t.Errorf("%s: %q, %v", s.Key, text, err)
		}
		again, err := s.Check(text)
		if err != nil || again != text {
			t.Errorf("%s: spelled %q, then %q", s.Key, text, again)
		}
	}
	if _, ok := MeshSetting("nothing"); ok {
		t.Error("found a setting that is none")
	}
}
