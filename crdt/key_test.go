package crdt_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"llmgw/crdt"
)

func TestKeyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.StringN(1, 10, -1).Draw(t, "namespace")
		parts := rapid.SliceOfN(rapid.StringN(0, 40, 200), 0, 4).Draw(t, "parts")
		key := crdt.NewKey(ns, parts...)
		got, err := key.Parts()
		if err != nil || key.Namespace() != ns || !slices.Equal(got, parts) {
			t.Fatalf("got %q %q %v, want %q %q", key.Namespace(), got, err, ns, parts)
		}
	})
}

func TestKeysOfDifferentTuplesDiffer(t *testing.T) {
	tuples := [][]string{{"a", "b/c"}, {"a/b", "c"}, {"a", "b", "c"}, {"a", "bc"}, {"a", "b", "c", ""}, {"a", "", "b", "c"}, {"ab", "c"}}
	seen := map[crdt.Key]int{}
	for i, tuple := range tuples {
		key := crdt.NewKey(tuple[0], tuple[1:]...)
		if j, ok := seen[key]; ok {
			t.Errorf("%q and %q share a key", tuple, tuples[j])
		}
		seen[key] = i
	}
}

func TestNamespaceIsAPrefixOfItsKeysOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SampledFrom([]string{"k", "ke", "keys", "keysx", "models"}).Draw(t, "a")
		b := rapid.SampledFrom([]string{"k", "ke", "keys", "keysx", "models"}).Draw(t, "b")
		key := crdt.NewKey(a, rapid.StringN(0, 5, -1).Draw(t, "part"))
		if strings.HasPrefix(string(key), string(crdt.NewKey(b))) != (a == b) {
			t.Fatalf("namespace %q and key %s", b, key)
		}
	})
}

func TestKeyValidate(t *testing.T) {
	for _, tc := range []struct {
		name string
		key  crdt.Key
		want error
	}{
		{"namespace alone", crdt.NewKey("settings"), nil},
		{"binary parts", crdt.NewKey("x", "\x00\xff/"), nil},
		{"longest", crdt.NewKey("x", strings.Repeat("p", crdt.MaxKeyBytes-4)), nil},
		{"too long", crdt.NewKey("x", strings.Repeat("p", crdt.MaxKeyBytes)), crdt.ErrTooLarge},
		{"empty", "", crdt.ErrMalformed},
		{"empty namespace", crdt.NewKey("", "a"), crdt.ErrMalformed},
		{"part cut short", "\x01x\x05ab", crdt.ErrMalformed},
		{"length cut short", "\x01x\x80", crdt.ErrMalformed},
		{"length not in shortest form", "\x81\x00x", crdt.ErrMalformed},
		{"zero not in shortest form", "\x01x\x80\x00", crdt.ErrMalformed},
		{"length over 64 bits", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x", crdt.ErrMalformed},
		{"length that overflows int", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x", crdt.ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.key.Validate(); !errors.Is(err, tc.want) || (tc.want == nil) != (err == nil) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestKeyString(t *testing.T) {
	for want, key := range map[string]crdt.Key{
		"models/m1":           crdt.NewKey("models", "m1"),
		`models/"a/b"`:        crdt.NewKey("models", "a/b"),
		`models/""/"\n"`:      crdt.NewKey("models", "", "\n"),
		"malformed key 05":    "\x05",
		"assignments/m1/slot": crdt.NewKey("assignments", "m1", "slot"),
	} {
		if got := key.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func FuzzKey(f *testing.F) {
	f.Add("\x06models\x02m1")
	f.Add("\x81\x00x")
	f.Fuzz(func(t *testing.T, s string) {
		key := crdt.Key(s)
		parts, err := key.Parts()
		if key.Validate() != nil {
			return
		}
		if err != nil {
			t.Fatalf("valid key without parts: %v", err)
		}
		if again := crdt.NewKey(key.Namespace(), parts...); again != key {
			t.Fatalf("%x reads as %x", string(key), string(again))
		}
	})
}
