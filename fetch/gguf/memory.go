package gguf

import (
	"math"
	"strings"
)

// Bounds for numbers of a model's shape; beyond them a header is taken to say
// nothing, so that no product of them leaves 64 bits.
const (
	maxLayers = 1 << 14
	maxHeads  = 1 << 16
	maxLength = 1 << 20 // of a key or value vector
)

// wanted picks the keys that are remembered, by what follows "general." or
// the architecture's name.
func wanted(key string) bool {
	_, rest, _ := strings.Cut(key, ".")
	switch rest {
	case "architecture", "name", "type", "alignment",
		"block_count", "context_length", "embedding_length", "pooling_type",
		"attention.head_count", "attention.head_count_kv",
		"attention.key_length", "attention.value_length",
		"attention.key_length_swa", "attention.value_length_swa",
		"attention.kv_lora_rank", "attention.sliding_window", "attention.causal",
		"rope.dimension_count":
		return true
	}
	return false
}

// KVBytesPerToken is the memory that one token of context takes in the KV
// cache over all layers, with bytesPerElement bytes an element (2 for the
// usual 16 bits, 34.0/32 for q8_0). It is 0 when the header does not tell.
//
// Windowed layers count as full ones: this is an upper bound that holds for
// any context, also shorter than the window.
func (h Header) KVBytesPerToken(bytesPerElement float64) int64 {
	layers := h.number("block_count")
	if layers == 0 || layers > maxLayers || h.encoder() {
		return 0
	}
	elements, ok := h.latentElements(layers)
	if !ok {
		elements = h.headElements(layers)
	}
	total := math.Ceil(float64(elements) * bytesPerElement)
	if !(total > 0 && total < 1<<62) {
		return 0
	}
	return int64(total)
}

// encoder tells that the model looks at its whole input at once and keeps no
// KV cache.
func (h Header) encoder() bool {
	v, ok := h.values[h.Architecture()+".attention.causal"]
	return ok && !v.array && v.number() == 0
}

// latentElements counts one token's elements for latent attention (MLA): one
// compressed vector and one rotary part a layer, no values.
func (h Header) latentElements(layers uint64) (uint64, bool) {
	rank := h.number("attention.kv_lora_rank")
	if rank == 0 {
		return 0, false
	}
	rope := h.number("rope.dimension_count")
	if rope == 0 || rank > maxLength || rope > maxLength {
		return 0, true
	}
	return layers * (rank + rope), true
}

// headElements counts one token's elements for attention with key-value
// heads, whose number may differ by layer; a layer with none has no KV.
func (h Header) headElements(layers uint64) uint64 {
	heads := h.perLayer("attention.head_count", layers)
	kv := h.perLayer("attention.head_count_kv", layers)
	if kv == nil {
		kv = heads
	}
	keys, values := h.vectorLength("key_length", heads), h.vectorLength("value_length", heads)
	if kv == nil || keys == 0 || values == 0 {
		return 0
	}
	var sum uint64
	for _, n := range kv {
		if n > maxHeads {
			return 0
		}
		sum += n * (keys + values)
	}
	return sum
}

// vectorLength is the length of a head's key or value vector, the longer of
// the full and the windowed layers'.
func (h Header) vectorLength(name string, heads []uint64) uint64 {
	n := max(h.number("attention."+name), h.number("attention."+name+"_swa"))
	if n == 0 {
		for _, count := range heads {
			if count > 0 {
				n = h.number("embedding_length") / count
				break
			}
		}
	}
	if n > maxLength {
		return 0
	}
	return n
}

// perLayer reads a number that is one for all layers or an array with one for
// each; nil when absent or of another length.
func (h Header) perLayer(suffix string, layers uint64) []uint64 {
	v, ok := h.values[h.Architecture()+"."+suffix]
	switch {
	case !ok:
		return nil
	case v.array && uint64(len(v.ints)) == layers:
		return v.ints
	case v.array || len(v.ints) != 1:
		return nil
	}
	all := make([]uint64, layers) // bounded by maxLayers
	for i := range all {
		all[i] = v.ints[0]
	}
	return all
}
