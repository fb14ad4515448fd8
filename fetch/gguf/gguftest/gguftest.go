// Package gguftest owns making small GGUF files for tests of those who read
// them. The files are whole by the format's rules, and may be broken on
// purpose; it is no writer for real models.
package gguftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Array is a metadata array whose elements are all of Go type of the first.
type Array []any

// Tensor is one entry of the list of tensors.
type Tensor struct {
	Name   string
	Dims   []uint64
	Type   uint32
	Offset uint64 // from the start of the data
}

// KV is one metadata entry. Values are uint8, int8, uint16, int16, uint32,
// int32, float32, bool, string, Array, uint64, int64 or float64.
type KV struct {
	Key   string
	Value any
}

// File describes a file to make. The zero value of Version means 3, and of
// Order little endian.
type File struct {
	Version uint32
	Order   binary.ByteOrder
	KVs     []KV
	Tensors []Tensor
	Data    int // bytes of tensor data behind the aligned header
}

// Bytes is the file's content. It panics on a value of another type.
func (f File) Bytes() []byte {
	if f.Version == 0 {
		f.Version = 3
	}
	if f.Order == nil {
		f.Order = binary.LittleEndian
	}
	w := writer{order: f.Order}
	w.WriteString("GGUF")
	w.put(f.Version, uint64(len(f.Tensors)), uint64(len(f.KVs)))
	for _, kv := range f.KVs {
		w.text(kv.Key)
		w.put(tag(kv.Value))
		w.value(kv.Value)
	}
	for _, t := range f.Tensors {
		w.text(t.Name)
		w.put(uint32(len(t.Dims)), t.Dims, t.Type, t.Offset)
	}
	if len(f.Tensors) > 0 {
		w.Write(make([]byte, (32-w.Len()%32)%32))
	}
	w.Write(make([]byte, f.Data))
	return w.Bytes()
}

// Model is a whole file of a tiny model of the llama architecture, of about
// size bytes and with content that differs by name.
func Model(name string, size int) []byte {
	size = size / 4 * 4
	return File{
		KVs: []KV{
			kv("general.architecture", "llama"),
			kv("general.name", name),
			kv("llama.block_count", uint32(2)),
			kv("llama.context_length", uint32(512)),
			kv("llama.embedding_length", uint32(64)),
			kv("llama.attention.head_count", uint32(4)),
			kv("llama.attention.head_count_kv", uint32(2)),
		},
		Tensors: []Tensor{{Name: "weights", Dims: []uint64{uint64(size / 4)}}},
		Data:    size,
	}.Bytes()
}

func kv(key string, value any) KV { return KV{Key: key, Value: value} }

type writer struct {
	bytes.Buffer
	order binary.ByteOrder
}

func (w *writer) put(values ...any) {
	for _, v := range values {
		if err := binary.Write(&w.Buffer, w.order, v); err != nil {
			panic(fmt.Sprintf("gguftest: %T: %v", v, err))
		}
	}
}

func (w *writer) text(s string) {
	w.put(uint64(len(s)))
	w.WriteString(s)
}

func (w *writer) value(v any) {
	switch v := v.(type) {
	case string:
		w.text(v)
	case Array:
		elem := uint32(4)
		if len(v) > 0 {
			elem = tag(v[0])
		}
		w.put(elem, uint64(len(v)))
		for _, e := range v {
			w.value(e)
		}
	default:
		w.put(v)
	}
}

func tag(v any) uint32 {
	switch v.(type) {
	case uint8:
		return 0
	case int8:
		return 1
	case uint16:
		return 2
	case int16:
		return 3
	case uint32:
		return 4
	case int32:
		return 5
	case float32:
		return 6
	case bool:
		return 7
	case string:
		return 8
	case Array:
		return 9
	case uint64:
		return 10
	case int64:
		return 11
	case float64:
		return 12
	}
	panic(fmt.Sprintf("gguftest: no GGUF type for %T", v))
}
