package crdt_test

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"llmgw/crdt"
)

var digestKey = crdt.DigestKey{1, 2, 3}

// digestOf sums up present rows in the order given.
func digestOf(t interface{ Fatalf(string, ...any) }, items []crdt.Item) crdt.Digest {
	var d crdt.Digest
	for _, i := range items {
		d.Toggle(digestKey.Bucket(i.Key), digestKey.Fingerprint(i.Key, []byte(encode(t, i.Row))))
	}
	return d
}

func distinct(drawn []crdt.Item) []crdt.Item {
	seen := map[crdt.Key]bool{}
	return slices.DeleteFunc(slices.Clone(drawn), func(i crdt.Item) bool {
		had := seen[i.Key]
		seen[i.Key] = true
		return had
	})
}

func TestDigestIsIndependentOfOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := distinct(rapid.SliceOf(items).Draw(t, "items"))
		shuffled := rapid.Permutation(some).Draw(t, "shuffled")
		a, b := digestOf(t, some), digestOf(t, shuffled)
		if got := a.Diff(&b); len(got) != 0 {
			t.Fatalf("the order changed buckets %v", got)
		}
	})
}

func TestDigestForgetsWhatWasTakenOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := distinct(rapid.SliceOfN(items, 1, 8).Draw(t, "items"))
		d := digestOf(t, some)
		gone := some[rapid.IntRange(0, len(some)-1).Draw(t, "gone")]
		bucket := digestKey.Bucket(gone.Key)
		d.Toggle(bucket, digestKey.Fingerprint(gone.Key, []byte(encode(t, gone.Row))))
		rest := digestOf(t, slices.DeleteFunc(slices.Clone(some), func(i crdt.Item) bool { return i.Key == gone.Key }))
		if got := d.Diff(&rest); len(got) != 0 {
			t.Fatalf("buckets %v remember a row that is gone", got)
		}
	})
}

func TestDigestFindsADifferentRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key, a, b := keys.Draw(t, "key"), rows.Draw(t, "a"), rows.Draw(t, "b")
		if a.Equal(b) {
			t.Skip("the same row")
		}
		one, other := digestOf(t, []crdt.Item{{Key: key, Row: a}}), digestOf(t, []crdt.Item{{Key: key, Row: b}})
		if got := one.Diff(&other); !slices.Equal(got, []int{digestKey.Bucket(key)}) {
			t.Fatalf("buckets %v differ", got)
		}
	})
}

func TestFingerprintsOfOneMeshMeanNothingInAnother(t *testing.T) {
	key, row := crdt.NewKey("models", "m"), []byte("row")
	if digestKey.Fingerprint(key, row) == (crdt.DigestKey{}).Fingerprint(key, row) {
		t.Error("the key has no part in it")
	}
	// The border between key and row counts.
	if digestKey.Fingerprint("ab", []byte("c")) == digestKey.Fingerprint("a", []byte("bc")) {
		t.Error("key and row run into each other")
	}
}

func TestBucketsAreEvenlyFilled(t *testing.T) {
	var filled [crdt.DigestBuckets]int
	for range 100 * crdt.DigestBuckets {
		filled[digestKey.Bucket(crdt.NewKey("models", hex.EncodeToString([]byte{byte(rand.Int()), byte(rand.Int()), byte(rand.Int()), byte(rand.Int())})))]++
	}
	if most, least := slices.Max(filled[:]), slices.Min(filled[:]); most > 200 || least < 30 {
		t.Errorf("buckets hold %d to %d of 100 on average", least, most)
	}
}

// Golden values: all members must come to the same.
func TestGoldenFingerprint(t *testing.T) {
	key := crdt.NewKey("models", "m")
	f := digestKey.Fingerprint(key, []byte(encode(t, crdt.Row{Length: 1, Cells: map[string]crdt.Cell{"a": {At: 5, By: 7, Value: []byte("v")}}})))
	if got, want := hex.EncodeToString(f[:]), "35540b6046e0716c1cff1234a1792557"; got != want || digestKey.Bucket(key) != 611 {
		t.Errorf("fingerprint %s in bucket %d", got, digestKey.Bucket(key))
	}
}

func TestDigestRoundTrip(t *testing.T) {
	d := digestOf(t, []crdt.Item{{Key: crdt.NewKey("a"), Row: crdt.Row{Length: 1}}})
	data := d.Encode()
	got, err := crdt.DecodeDigest(data)
	if err != nil || got != d {
		t.Errorf("decoded with %v", err)
	}
	for name, tc := range map[string]struct {
		data []byte
		want error
	}{
		"empty":        {nil, crdt.ErrMalformed},
		"newer":        {append([]byte{2}, data[1:]...), crdt.ErrVersion},
		"cut short":    {data[:len(data)-1], crdt.ErrMalformed},
		"one too long": {append(slices.Clone(data), 0), crdt.ErrMalformed},
	} {
		if _, err := crdt.DecodeDigest(tc.data); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var entries = rapid.Custom(func(t *rapid.T) crdt.DigestEntry {
	e := crdt.DigestEntry{Key: keys.Draw(t, "key")}
	e.Hash[0] = rapid.Byte().Draw(t, "hash")
	return e
})

func TestEntriesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(entries).Draw(t, "entries")
		data, err := crdt.EncodeEntries(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := crdt.DecodeEntries(data)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("decoded with %v: %s", err, diff)
		}
	})
	if _, err := crdt.EncodeEntries([]crdt.DigestEntry{{Key: "\x05a"}}); !errors.Is(err, crdt.ErrMalformed) {
		t.Errorf("a malformed key was encoded: %v", err)
	}
}

func TestDecodeEntriesRefuses(t *testing.T) {
	hash := "50" + hex.EncodeToString(make([]byte, 16))
	for _, tc := range []struct {
		name, hex string
		want      error
	}{
		{"empty input", "", crdt.ErrMalformed},
		{"newer version", "0280", crdt.ErrVersion},
		{"hash too short", "0181" + "82" + "420178" + "40", crdt.ErrMalformed},
		{"hash too long", "0181" + "82" + "420178" + "51" + hex.EncodeToString(make([]byte, 17)), crdt.ErrMalformed},
		{"key malformed", "0181" + "82" + "420578" + hash, crdt.ErrMalformed},
		{"entry too long", "0181" + "83" + "420178" + hash + "00", crdt.ErrMalformed},
		{"not in shortest form", "019801" + "82" + "420178" + hash, crdt.ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data, err := hex.DecodeString(tc.hex)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := crdt.DecodeEntries(data); !errors.Is(err, tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := crdt.DecodeEntries(make([]byte, crdt.MaxMessageBytes+1)); !errors.Is(err, crdt.ErrTooLarge) {
		t.Errorf("a message over the bound: %v", err)
	}
}

func TestDiffEntries(t *testing.T) {
	e := func(name string, hash byte) crdt.DigestEntry {
		return crdt.DigestEntry{Key: crdt.NewKey(name), Hash: crdt.Fingerprint{hash}}
	}
	a := []crdt.DigestEntry{e("same", 1), e("differs", 1), e("mine", 1)}
	b := []crdt.DigestEntry{e("yours", 1), e("differs", 2), e("same", 1)}
	want := []crdt.Key{crdt.NewKey("mine"), crdt.NewKey("yours"), crdt.NewKey("differs")}
	if diff := cmp.Diff(want, crdt.DiffEntries(a, b)); diff != "" {
		t.Error(diff)
	}
	if got := crdt.DiffEntries(a, a); len(got) != 0 {
		t.Errorf("equal listings differ in %v", got)
	}
}

func FuzzDecodeDigest(f *testing.F) {
	var d crdt.Digest
	d.Toggle(7, crdt.Fingerprint{1})
	f.Add(d.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := crdt.DecodeDigest(data)
		if err != nil {
			return
		}
		if again := got.Encode(); string(again) != string(data) {
			t.Error("decodes and encodes to something else")
		}
	})
}

func FuzzDecodeEntries(f *testing.F) {
	data, err := crdt.EncodeEntries([]crdt.DigestEntry{{Key: crdt.NewKey("models", "m"), Hash: crdt.Fingerprint{1}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := crdt.DecodeEntries(data)
		if err != nil {
			return
		}
		again, err := crdt.EncodeEntries(entries)
		if err != nil || string(again) != string(data) {
			t.Errorf("%x decodes and encodes to %x, %v", data, again, err)
		}
	})
}
