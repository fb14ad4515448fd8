package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"llmgw/fetch/gguf"
	"llmgw/fetch/gguf/gguftest"
)

func kv(key string, value any) gguftest.KV { return gguftest.KV{Key: key, Value: value} }

func read(t *testing.T, f gguftest.File) gguf.Header {
	t.Helper()
	h, err := gguf.ReadHeader(bytes.NewReader(f.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHeaderTellsTheModel(t *testing.T) {
	// The architecture comes last: readers may not rely on its place.
	kvs := []gguftest.KV{
		kv("llama.context_length", uint32(8192)),
		kv("tokenizer.ggml.tokens", gguftest.Array{"a", "b", strings.Repeat("c", 5000)}),
		kv("tokenizer.ggml.scores", gguftest.Array{float32(1), float32(2)}),
		kv("llama.attention.sliding_window", uint64(512)),
		kv("llama.rope.freq_base", float32(1e4)),
		kv("other.context_length", uint32(1)),
		kv("general.name", "Tiny"),
		kv("general.type", "model"),
		kv("general.architecture", "llama"),
	}
	for name, f := range map[string]gguftest.File{
		"version 3":  {KVs: kvs},
		"version 2":  {KVs: kvs, Version: 2},
		"big endian": {KVs: kvs, Order: binary.BigEndian},
	} {
		t.Run(name, func(t *testing.T) {
			h := read(t, f)
			if h.Architecture() != "llama" || h.Name() != "Tiny" || h.Type() != "model" {
				t.Errorf("got %q %q %q", h.Architecture(), h.Name(), h.Type())
			}
			if h.ContextLength() != 8192 || h.SlidingWindow() != 512 {
				t.Errorf("got context %d, window %d", h.ContextLength(), h.SlidingWindow())
			}
			if h.BigEndian != (name == "big endian") {
				t.Errorf("got big endian %v", h.BigEndian)
			}
		})
	}
}

func TestUnknownStaysUnknown(t *testing.T) {
	h := read(t, gguftest.File{KVs: []gguftest.KV{
		kv("general.architecture", "llama"),
		kv("llama.context_length", int32(-5)),
		kv("llama.attention.sliding_window", "many"),
	}})
	if h.ContextLength() != 0 || h.SlidingWindow() != 0 || h.KVBytesPerToken(2) != 0 {
		t.Errorf("got context %d, window %d, KV %d, all unknown", h.ContextLength(), h.SlidingWindow(), h.KVBytesPerToken(2))
	}
}

func TestMinSizeIsTheWholeFile(t *testing.T) {
	// 2x256 elements of Q4_K are two blocks of 144 bytes.
	f := gguftest.File{
		KVs: []gguftest.KV{kv("general.architecture", "llama")},
		Tensors: []gguftest.Tensor{
			{Name: "late", Dims: []uint64{256, 2}, Type: 12, Offset: 64},
			{Name: "early", Dims: []uint64{8}, Type: 0, Offset: 0},
		},
		Data: 64 + 288,
	}
	if got, want := read(t, f).MinSize, int64(len(f.Bytes())); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
	f.Tensors[0].Type = 99 // of unknown layout: a lower bound remains
	if got, want := read(t, f).MinSize, int64(len(f.Bytes())-288); got != want {
		t.Errorf("unknown type: got %d, want %d", got, want)
	}
}

func TestMalformedHeaders(t *testing.T) {
	head := func(version uint32, tensors, keys uint64, rest ...any) []byte {
		var b bytes.Buffer
		b.WriteString("GGUF")
		for _, v := range append([]any{version, tensors, keys}, rest...) {
			if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
				t.Fatal(err)
			}
		}
		return b.Bytes()
	}
	file := func(kvs ...gguftest.KV) []byte { return gguftest.File{KVs: kvs}.Bytes() }
	tensor := func(x gguftest.Tensor) []byte { return gguftest.File{Tensors: []gguftest.Tensor{x}}.Bytes() }
	key := func(k string) []any { return []any{uint64(len(k)), []byte(k)} }
	const huge = uint64(1) << 62
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"empty":               {nil, gguf.ErrNotGGUF},
		"three bytes":         {[]byte("GGU"), gguf.ErrNotGGUF},
		"another format":      {[]byte("PK\x03\x04 and so on"), gguf.ErrNotGGUF},
		"version 1":           {head(1, 0, 0), gguf.ErrVersion},
		"version 4":           {head(4, 0, 0), gguf.ErrVersion},
		"too many keys":       {head(3, 0, huge), gguf.ErrMalformed},
		"too many tensors":    {head(3, huge, 0), gguf.ErrMalformed},
		"endless key":         {head(3, 0, 1, huge), gguf.ErrMalformed},
		"endless string":      {head(3, 0, 1, append(key("a.b"), uint32(8), huge)...), gguf.ErrMalformed},
		"endless numbers":     {head(3, 0, 1, append(key("a.b"), uint32(9), uint32(10), huge)...), gguf.ErrMalformed},
		"endless strings":     {head(3, 0, 1, append(key("a.b"), uint32(9), uint32(8), huge)...), gguf.ErrMalformed},
		"endless wanted list": {head(3, 0, 1, append(key("a.block_count"), uint32(9), uint32(10), huge)...), gguf.ErrMalformed},
		"endless arrays":      {head(3, 0, 1, append(key("a.b"), uint32(9), uint32(9), huge)...), gguf.ErrMalformed},
		"unknown type":        {head(3, 0, 1, append(key("a.b"), uint32(13))...), gguf.ErrMalformed},
		"unknown wanted type": {head(3, 0, 1, append(key("general.name"), uint32(77))...), gguf.ErrMalformed},
		"unknown array type":  {head(3, 0, 1, append(key("a.b"), uint32(9), uint32(44), uint64(1))...), gguf.ErrMalformed},
		"arrays too deep":     {file(kv("a.b", gguftest.Array{gguftest.Array{gguftest.Array{uint8(1)}}})), gguf.ErrMalformed},
		"key twice":           {file(kv("general.name", "a"), kv("general.name", "b")), gguf.ErrMalformed},
		"alignment zero bits": {gguftest.File{KVs: []gguftest.KV{kv("general.alignment", uint32(33))}}.Bytes(), gguf.ErrMalformed},
		"five dimensions":     {tensor(gguftest.Tensor{Dims: []uint64{1, 1, 1, 1, 1}}), gguf.ErrMalformed},
		"elements overflow":   {tensor(gguftest.Tensor{Dims: []uint64{1 << 40, 1 << 40}}), gguf.ErrMalformed},
		"offset overflow":     {tensor(gguftest.Tensor{Dims: []uint64{1}, Offset: 1 << 63}), gguf.ErrMalformed},
		"long tensor name":    {tensor(gguftest.Tensor{Name: strings.Repeat("x", 2000)}), gguf.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := gguf.ReadHeader(bytes.NewReader(c.file)); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestArraysOfArraysAreSkipped(t *testing.T) {
	h := read(t, gguftest.File{KVs: []gguftest.KV{
		kv("a.b", gguftest.Array{gguftest.Array{"x", "y"}, gguftest.Array{}}),
		kv("general.architecture", "llama"),
	}})
	if h.Architecture() != "llama" {
		t.Errorf("got %q behind the nested array", h.Architecture())
	}
}

func TestEveryTruncationIsAnError(t *testing.T) {
	whole := gguftest.Model("cut", 64)
	end := len(whole) - 64 - 32 // inside the header for certain
	for n := range end {
		_, err := gguf.ReadHeader(bytes.NewReader(whole[:n]))
		if !errors.Is(err, gguf.ErrMalformed) && !errors.Is(err, gguf.ErrNotGGUF) {
			t.Fatalf("%d of %d bytes: got %v", n, len(whole), err)
		}
	}
}

func TestReadErrorsAreNotTheFilesFault(t *testing.T) {
	broken := errors.New("disk fails")
	for _, n := range []int{0, 4, 30} {
		r := io.MultiReader(bytes.NewReader(gguftest.Model("x", 64)[:n]), iotest.ErrReader(broken))
		_, err := gguf.ReadHeader(r)
		if !errors.Is(err, broken) || errors.Is(err, gguf.ErrMalformed) || errors.Is(err, gguf.ErrNotGGUF) {
			t.Errorf("after %d bytes: got %v", n, err)
		}
	}
}

// endless repeats a page for ever.
type endless struct {
	page []byte
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.page[e.at:])
	e.at = (e.at + n) % len(e.page)
	return n, nil
}

func TestMemoryDoesNotFollowTheFile(t *testing.T) {
	// A header that promises 8 Gi strings and keeps its promise.
	b := gguftest.File{KVs: []gguftest.KV{kv("a.b", gguftest.Array{"x"})}}.Bytes()
	binary.LittleEndian.PutUint64(b[len(b)-17:], 1<<33) // the array's length
	page := make([]byte, 8+64<<10)                      // a string and its length
	binary.LittleEndian.PutUint64(page, 64<<10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := gguf.ReadHeader(io.MultiReader(bytes.NewReader(b[:len(b)-9]), &endless{page: page}))
	runtime.ReadMemStats(&after)
	if !errors.Is(err, gguf.ErrMalformed) || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got %v, want an end at the largest header", err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("allocated %d bytes for values that nobody wants", got)
	}
}

func FuzzReadHeader(f *testing.F) {
	f.Add(gguftest.Model("seed", 64))
	f.Add(gguftest.File{Order: binary.BigEndian, Version: 2, KVs: []gguftest.KV{
		kv("a.b", gguftest.Array{gguftest.Array{uint8(1)}}), kv("general.architecture", "x"),
		kv("x.block_count", int8(3)), kv("x.attention.head_count", gguftest.Array{uint16(1), uint16(0), uint16(9)}),
		kv("x.embedding_length", float64(9e9)), kv("x.attention.kv_lora_rank", true),
	}}.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := gguf.ReadHeader(bytes.NewReader(data))
		if err != nil {
			return
		}
		if h.MinSize < 0 || h.ContextLength() < 0 || h.KVBytesPerToken(2) < 0 || h.KVBytesPerToken(4) < h.KVBytesPerToken(2) {
			t.Errorf("impossible numbers: size %d, context %d, KV %d", h.MinSize, h.ContextLength(), h.KVBytesPerToken(2))
		}
	})
}
