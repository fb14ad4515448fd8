package gguf_test

import (
	"testing"

	"llmgw/fetch/gguf/gguftest"
)

// shape makes a file of architecture a with the given numbers.
func shape(numbers map[string]any) gguftest.File {
	f := gguftest.File{KVs: []gguftest.KV{kv("general.architecture", "a")}}
	for k, v := range numbers {
		f.KVs = append(f.KVs, kv("a."+k, v))
	}
	return f
}

func TestKVBytesPerToken(t *testing.T) {
	const f16, q8 = 2.0, 34.0 / 32
	u := func(n int) uint32 { return uint32(n) }
	llama3 := map[string]any{
		"block_count": u(32), "embedding_length": u(4096),
		"attention.head_count": u(32), "attention.head_count_kv": u(8),
	}
	for name, c := range map[string]struct {
		shape map[string]any
		bytes float64
		want  int64
	}{
		"Llama-3-8B at 16 bits": {llama3, f16, 131072},
		"Llama-3-8B at q8_0":    {llama3, q8, 69632},
		"Qwen2.5-7B": {map[string]any{
			"block_count": u(28), "embedding_length": u(3584),
			"attention.head_count": u(28), "attention.head_count_kv": u(4),
		}, f16, 57344},
		"DeepSeek-V3, latent attention": {map[string]any{
			"block_count": u(61), "attention.kv_lora_rank": u(512), "rope.dimension_count": u(64),
			"attention.head_count": u(128), "attention.key_length": u(192), "attention.value_length": u(128),
		}, f16, 70272},
		"SmolLM2-135M": {map[string]any{
			"block_count": u(30), "embedding_length": u(576),
			"attention.head_count": u(9), "attention.head_count_kv": u(3),
		}, f16, 23040},
		"heads of a length of their own": {map[string]any{
			"block_count": u(10), "embedding_length": u(999), "attention.head_count": u(8),
			"attention.head_count_kv": u(2), "attention.key_length": u(128), "attention.value_length": u(64),
		}, f16, 10 * 2 * (128 + 64) * 2},
		"no key-value heads told: as many as heads": {map[string]any{
			"block_count": u(2), "embedding_length": u(64), "attention.head_count": u(4),
		}, f16, 2 * 4 * 32 * 2},
		"layers without attention": {map[string]any{
			"block_count": u(4), "embedding_length": u(64), "attention.head_count": u(4),
			"attention.head_count_kv": gguftest.Array{u(0), u(2), u(0), u(4)},
		}, f16, 6 * 32 * 2},
		"windowed layers with longer heads count as full ones": {map[string]any{
			"block_count": u(4), "attention.head_count": u(4), "attention.head_count_kv": u(1),
			"attention.key_length": u(128), "attention.value_length": u(128),
			"attention.key_length_swa": u(256), "attention.value_length_swa": u(64),
			"attention.sliding_window": u(512),
		}, f16, 4 * (256 + 128) * 2},
		"an encoder keeps none": {map[string]any{
			"block_count": u(12), "embedding_length": u(384), "attention.head_count": u(12), "attention.causal": false,
		}, f16, 0},
		"no layers told":      {map[string]any{"embedding_length": u(64), "attention.head_count": u(4)}, f16, 0},
		"no heads told":       {map[string]any{"block_count": u(4), "embedding_length": u(64)}, f16, 0},
		"no lengths told":     {map[string]any{"block_count": u(4), "attention.head_count": u(4)}, f16, 0},
		"latent without rope": {map[string]any{"block_count": u(4), "attention.kv_lora_rank": u(512), "attention.head_count": u(4), "embedding_length": u(64)}, f16, 0},
		"too few layers listed": {map[string]any{
			"block_count": u(4), "embedding_length": u(64), "attention.head_count": gguftest.Array{u(4)},
		}, f16, 0},
		"absurd layers": {map[string]any{"block_count": u(1 << 30), "embedding_length": u(64), "attention.head_count": u(4)}, f16, 0},
		"absurd heads": {map[string]any{
			"block_count": u(4), "embedding_length": u(64), "attention.head_count": u(4), "attention.head_count_kv": u(1 << 31),
		}, f16, 0},
		"absurd length": {map[string]any{
			"block_count": u(4), "attention.head_count": u(4), "attention.key_length": uint64(1 << 63), "attention.value_length": u(1),
		}, f16, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := read(t, shape(c.shape)).KVBytesPerToken(c.bytes); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}
