package kvevents

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"
)

func packed(t testing.TB, v any) []byte {
	t.Helper()
	b, err := msgpack.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type fields = map[string]any

func TestBothFormsAreRead(t *testing.T) {
	name := []byte{1, 2, 3}
	full := []Event{
		{Kind: Stored, Medium: "GPU", Blocks: []uint64{7, 1<<64 - 1, xxhash.Sum64(name)}, Tokens: 16},
		{Kind: Removed, Medium: "CPU", Blocks: []uint64{7}},
		{Kind: Cleared, Medium: "GPU"},
	}
	blocks := []any{7, uint64(1<<64 - 1), name}
	for form, c := range map[string]struct {
		batch any
		want  []Event
	}{
		"arrays": {[]any{1.5, []any{
			[]any{"BlockStored", blocks, nil, []int{1, 2, 3}, 16, nil, "GPU", nil, []any{nil, []any{"salt"}}, 0},
			[]any{"BlockRemoved", []any{7}, "CPU", 3},
			[]any{"AllBlocksCleared"},
			[]any{"SomethingElse", fields{"x": []any{fields{"y": 1}}}},
		}, 0}, full},
		"maps": {fields{"ts": 1.5, "data_parallel_rank": nil, "events": []any{
			fields{"block_hashes": blocks, "type": "BlockStored", "token_ids": []int{1, 2}, "block_size": 16, "medium": nil, "locality": fields{"a": nil}},
			fields{"type": "BlockRemoved", "block_hashes": []any{7}, "medium": "CPU"},
			fields{"type": "AllBlocksCleared"},
			fields{"type": "SomethingElse", "block_hashes": []any{9}},
		}}, full},
		"maps in an array": {[]any{1.5, []any{fields{"type": "BlockRemoved", "block_hashes": []any{7}, "medium": "CPU"}}, nil}, full[1:2]},
		"short array":      {[]any{1.5, []any{[]any{"BlockStored", []any{7}}}}, []Event{{Kind: Stored, Medium: "GPU", Blocks: []uint64{7}}}},
		"no events":        {[]any{1.5, []any{}}, nil},
		"no batch":         {[]any{}, nil},
		"nil":              {nil, nil},
	} {
		got, err := Decode(packed(t, c.batch))
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", form, err, diff)
		}
	}
}

func TestWhatCannotBeReadIsRefused(t *testing.T) {
	deep := bytes.Repeat([]byte{0x91}, 1<<20) // an array in an array in an array
	for name, payload := range map[string][]byte{
		"empty": {}, "text": []byte("hello"), "cut short": packed(t, []any{1.5, []any{[]any{"BlockStored", []any{1}}}})[:20],
		"huge array": {0xdd, 0xff, 0xff, 0xff, 0xff}, "huge map": {0xdf, 0xff, 0xff, 0xff, 0xff},
		"huge hash": append(append([]byte{0x92, 0xc0, 0x91, 0x92}, packed(t, "BlockRemoved")...), 0x91, 0xc6, 0xff, 0xff, 0xff, 0xff),
		"deep":      append([]byte{0x92}, deep...), "long name": packed(t, fields{string(make([]byte, 100)): 1}),
		"a size that is text": packed(t, []any{0, []any{fields{"type": "BlockStored", "block_size": "many"}}}),
	} {
		if got, err := Decode(payload); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
	if _, err := Decode(append([]byte{0x92}, deep...)); !errors.Is(err, errNested) {
		t.Errorf("deep nesting: %v", err)
	}
}

// FuzzDecode: nothing that an engine sends may stop a node, or make it take more
// memory than what was sent is worth.
func FuzzDecode(f *testing.F) {
	f.Add(packed(f, []any{1.5, []any{[]any{"BlockStored", []any{7, []byte{1}}, nil, []int{1, 2, 3}, 16, nil, "GPU"}}, 0}))
	f.Add(packed(f, fields{"ts": 1.5, "events": []any{fields{"type": "BlockRemoved", "block_hashes": []any{7}, "medium": "CPU"}}}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		events, err := Decode(payload)
		blocks := 0
		for _, e := range events {
			blocks += len(e.Blocks)
			if e.Kind < Stored || e.Kind > Cleared || e.Tokens < 0 || e.Tokens > maxTokens || len(e.Medium) > maxName {
				t.Fatalf("%+v", e)
			}
		}
		if blocks+len(events) > len(payload) {
			t.Fatalf("%d blocks in %d events of %d bytes, %v", blocks, len(events), len(payload), err)
		}
		var k Tracker
		k.Live(0, events, k.failed)
		if s := k.State(k.failed); s.Held < 0 || s.Room < 0 {
			t.Fatalf("%+v", s)
		}
	})
}

func FuzzGuard(f *testing.F) {
	f.Add(make([]byte, greeting), uint8(1))
	f.Add(append(make([]byte, greeting), 4, 2, 1, 1, 0, 0, 6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), uint8(3))
	f.Fuzz(func(t *testing.T, stream []byte, piece uint8) {
		whole := &guarded{}
		want := whole.follow(stream)
		cut := &guarded{}
		var got error
		for rest := stream; len(rest) > 0 && got == nil; {
			n := min(int(piece)+1, len(rest))
			got, rest = cut.follow(rest[:n]), rest[n:]
		}
		if (got == nil) != (want == nil) {
			t.Fatalf("whole %v, in pieces %v", want, got)
		}
		if want == nil && (whole.body != cut.body || whole.message != cut.message || whole.body > maxMessage) {
			t.Fatalf("whole %+v, in pieces %+v", whole, cut)
		}
	})
}
