package catalog

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"llmgw/crdt"

	"pgregory.net/rapid"
)

// ofKind finds a setting of a kind.
func ofKind(t tb, kind SettingKind) Setting {
	t.Helper()
	all := MeshSettings()
	i := slices.IndexFunc(all, func(s Setting) bool { return s.Kind == kind })
	if i < 0 {
		t.Fatal("there is no setting of the kind", kind)
	}
	return all[i]
}

func TestFormsOfSettings(t *testing.T) {
	for kind, forms := range map[SettingKind]map[string]string{
		SettingBool:     {"true": "true", "false": "false", "1": "true", "0": "false", "T": "true", "F": "false", "TRUE": "true", " False\n": "false", "t": "true"},
		SettingNumber:   {"0": "0", "7": "7", " 012 ": "12", "2147483647": "2147483647"},
		SettingDuration: {"1s": "1s", "24h": "24h0m0s", "90m": "1h30m0s", "1.5s": "1.5s", "1000ms": "1s", "86400s": "24h0m0s", "+5m": "5m0s", "1h1ns": "1h0m0.000000001s", "\t30s": "30s"},
		SettingAddresses: {
			"": "", " , ,": "", "a.example:1": "a.example:1", "192.0.2.7:65535": "192.0.2.7:65535", "[2001:db8::1]:8771": "[2001:db8::1]:8771", "[fe80::1%eth0]:8771": "[fe80::1%eth0]:8771",
			" b:2 , a:1,b:2": "b:2,a:1", "/ip4/192.0.2.1/tcp/8771": "/ip4/192.0.2.1/tcp/8771", "/dns4/a.example/tcp/1/p2p/12D3,a:1": "/dns4/a.example/tcp/1/p2p/12D3,a:1",
		},
		SettingNetworks: {"": "", "10.0.0.0/8": "10.0.0.0/8", "10.1.2.3/8": "10.1.2.3/8", " 192.0.2.7 ,fd00::/8": "192.0.2.7,fd00::/8", "::1": "::1", "0.0.0.0/0": "0.0.0.0/0", "::ffff:10.0.0.0/104": "::ffff:10.0.0.0/104"},
	} {
		for text, want := range forms {
			if got, err := ofKind(t, kind).Check(text); err != nil || got != want {
				t.Errorf("%s %q: %q, %v; want %q", kind, text, got, err, want)
			}
		}
	}
	for _, s := range MeshSettings() {
		for _, choice := range s.Choices {
			if got, err := s.Check(" " + choice + "\n"); err != nil || got != choice {
				t.Errorf("%s = %s: %q, %v", s.Key, choice, got, err)
			}
		}
	}
}

func TestFormsThatAreRefused(t *testing.T) {
	address := func(a string) string { return fmt.Sprintf("%q is neither HOST:PORT nor a multiaddr", a) }
	network := func(n string) string {
		return fmt.Sprintf("%q is neither an address nor a network, as 10.0.0.0/8", n)
	}
	const number, duration, truth = "is no whole number from 0 on", "is no duration from 1s to 24h, as in 30m", "is neither true nor false"
	for kind, forms := range map[SettingKind]map[string]string{
		SettingBool:     {"": truth, "yes": truth, "on": truth, "2": truth, "tRUE": truth, "true,true": truth, "\x00": truth},
		SettingNumber:   {"": number, "-1": number, "+1": number, "1.0": number, "1e3": number, "0x10": number, "2147483648": number, "99999999999999999999": number, "1 2": number, "١": number},
		SettingDuration: {"": duration, "0": duration, "30": duration, "0s": duration, "999ms": duration, "-1m": duration, "24h1ns": duration, "1d": duration, "9999999h": duration, "soon": duration},
		SettingAddresses: {
			"a": address("a"), "a:": address("a:"), ":1": address(":1"), "a:0": address("a:0"), "a:65536": address("a:65536"), "a:-1": address("a:-1"), "a:http": address("a:http"), "a:01": address("a:01"),
			"::1:80": address("::1:80"), "a:1,b": address("b"), "http://a:1": address("http://a:1"), "a b:1": address("a b:1"), "a\tb:1": address("a\tb:1"), "a\x00:1": address("a\x00:1"), "a\u00a0b:1": address("a\u00a0b:1"),
			"/ip4": address("/ip4"), "/ip4/192.0.2.1/tcp": address("/ip4/192.0.2.1/tcp"), "/ip4/192.0.2.1 /tcp/1": address("/ip4/192.0.2.1 /tcp/1"), "/ip4/x\ny/tcp/1": address("/ip4/x\ny/tcp/1"), "\xff:1": "is not UTF-8",
		},
		SettingNetworks: {
			"a.example": network("a.example"), "10.0.0.0/33": network("10.0.0.0/33"), "10.0.0/8": network("10.0.0/8"), "10.0.0.0/": network("10.0.0.0/"), "10.0.0.0/08": network("10.0.0.0/08"), "010.0.0.1": network("010.0.0.1"),
			"::1,192.0.2.7:80": network("192.0.2.7:80"), "fe80::%eth0/64": network("fe80::%eth0/64"), "*": network("*"), "::%\xb7": "is not UTF-8",
		},
	} {
		for text, why := range forms {
			s := ofKind(t, kind)
			got, err := s.Check(text)
			trimmed := strings.TrimSpace(text)
			refused[*SettingError](t, err, (&SettingError{s.Key, trimmed, why}).Error())
			if got != "" {
				t.Errorf("%s %q is refused and %q", kind, text, got)
			}
		}
	}
	level, _ := MeshSetting("log.level")
	for _, text := range []string{"loud", "Debug", "debug,info"} {
		_, err := level.Check(text)
		refused[*SettingError](t, err, fmt.Sprintf("setting log.level = %q: is not one of debug, info, warn, error", text))
	}
	_, err := level.Check("")
	refused[*SettingError](t, err, "setting log.level: is not one of debug, info, warn, error")
	err = quickBox(t).UpdateSettings(put("no.such", "1"))
	refused[*SettingError](t, err, "setting no.such: is no setting of the mesh")
}

func TestSettingsAreListedByKey(t *testing.T) {
	all := MeshSettings()
	for i, s := range all {
		if i > 0 && all[i-1].Key >= s.Key {
			t.Errorf("%s is listed after %s", s.Key, all[i-1].Key)
		}
		if (s.Kind == SettingChoice) != (len(s.Choices) > 0) {
			t.Errorf("%s is of the kind %s with the choices %v", s.Key, s.Kind, s.Choices)
		}
		if got, ok := MeshSetting(s.Key); !ok || got.Help != s.Help {
			t.Errorf("%s is not found", s.Key)
		}
		if _, ok := MeshSetting(strings.ToUpper(s.Key)); ok {
			t.Errorf("%s is found in capitals", s.Key)
		}
	}
	all[0].Key = "spoiled"
	if MeshSettings()[0].Key == "spoiled" {
		t.Error("the list is shared")
	}
}

func TestSplitList(t *testing.T) {
	for text, want := range map[string][]string{
		"": {}, ",": {}, " , ": {}, "a": {"a"}, "a,b": {"a", "b"}, " a , b ,a": {"a", "b"}, "a b": {"a b"}, "A,a": {"A", "a"}, ",a,": {"a"}, "a\n,\tb": {"a", "b"}, "a;b": {"a;b"},
	} {
		if got := SplitList(text); got == nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// What is spelled is read as it is, and lists have nothing twice.
func TestSpellingAgainChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(MeshSettings()).Draw(t, "setting")
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ 0-9a-z.:/,\[\]]{0,20}`), rapid.SampledFrom([]string{"true", "7", "30m", "a:1,a:1", "10.0.0.0/8,::1", "warn"})).Draw(t, "text")
		once, err := s.Check(text)
		if err != nil {
			return
		}
		if twice, err := s.Check(once); err != nil || twice != once {
			t.Fatalf("%q is spelled %q, then %q, %v", text, once, twice, err)
		}
	})
}

func TestParseNetwork(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.0/8": "10.0.0.0/8", "10.1.2.3/8": "10.0.0.0/8", "192.0.2.7": "192.0.2.7/32", "192.0.2.7/32": "192.0.2.7/32", "::1": "::1/128", "fd00::1/8": "fd00::/8",
		"::ffff:192.0.2.7": "192.0.2.7/32", "::ffff:10.1.0.0/104": "10.0.0.0/8", "::ffff:0:0/96": "0.0.0.0/0", "::ffff:10.1.0.0/128": "10.1.0.0/32", "::/0": "::/0", "fe80::1%eth0": "fe80::1/128",
	} {
		if got, err := ParseNetwork(text); err != nil || got.String() != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a", "10.0.0.0/33", "10.0.0", "10.0.0.0/8/8", " 10.0.0.0/8", "::1/129", "10.0.0.0/-1", "[::1]"} {
		if got, err := ParseNetwork(text); err == nil || got.IsValid() {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}

// An address is in the network that it stands for, however either is written.
func TestANetworkHoldsItsAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address"))
		v4, bits := netip.AddrFrom4(raw), rapid.IntRange(0, 32).Draw(t, "bits")
		mapped := netip.AddrFrom16(v4.As16())
		for _, text := range []string{v4.String(), mapped.String(), fmt.Sprintf("%s/%d", v4, bits), fmt.Sprintf("%s/%d", mapped, bits+96)} {
			p, err := ParseNetwork(text)
			must(t, err)
			if !p.Contains(v4) {
				t.Fatalf("%s, read as %s, lacks %s", text, p, v4)
			}
		}
	})
}

// A cell of another type or out of bounds is not used, whatever it holds, and is no error.
func TestCellsOfSettingsThatCannotBeUsed(t *testing.T) {
	for kind, values := range map[SettingKind][]any{
		SettingBool:      {"true", 1, []string{}, 0.5},
		SettingChoice:    {"loud", 7, true, nil, []string{"debug"}},
		SettingNumber:    {7, "-1", "x", true, ""},
		SettingDuration:  {30, "0s", "25h", true, "", []string{"30m"}},
		SettingAddresses: {"a:1", []string{"a"}, []string{"a:1", "b"}, []any{1}, true},
		SettingNetworks:  {"10.0.0.0/8", []string{"x"}, []any{[]string{"::1"}}, 0},
	} {
		s := ofKind(t, kind)
		for _, v := range values {
			if got, ok := s.read(rowOf(t, map[string]any{s.Key: v})); ok {
				t.Errorf("%s: %v is read as %q", s.Key, v, got)
			}
		}
		for name, raw := range garbage() {
			row := crdt.Row{Length: 1, Cells: map[string]crdt.Cell{s.Key: {Value: raw}}}
			if got := settingsFromRow(row); len(got) > 0 {
				t.Errorf("%s: %s is read as %v", s.Key, name, got)
			}
		}
	}
}

// Setting one thing takes nothing else along, neither what is set nor what cannot be used.
func TestSettingOneLeavesTheOthers(t *testing.T) {
	b := quickBox(t)
	key := crdt.NewKey(NamespaceSettings, settingsRow)
	b.put(t, key, map[string][]byte{"log.level": enc(t, 7), "future.key": enc(t, "x"), "router.queue_time": enc(t, "5s")})
	must(t, b.UpdateSettings(put("discovery.dht", "true")))
	must(t, b.UpdateSettings(func(s map[string]string) error { delete(s, "router.queue_time"); return nil }))
	row := b.row(t, key)
	if string(row.Cells["log.level"].Value) != string(enc(t, 7)) || len(row.Cells["router.queue_time"].Value) != 0 || len(row.Cells["future.key"].Value) == 0 {
		t.Errorf("cells are %v", slices.Sorted(maps.Keys(row.Cells)))
	}
	must(t, b.UpdateSettings(put("log.level", "debug"))) // what cannot be used may be set anew
	got, err := b.Settings()
	must(t, err)
	equal(t, "settings", map[string]string{"discovery.dht": "true", "log.level": "debug"}, got)
}
