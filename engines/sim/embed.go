package sim

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/http"
)

// embed answers with a unit vector that depends on the input alone.
func (s *Server) embed(w http.ResponseWriter, r *http.Request) {
	if !s.cfg.Embeddings {
		fail(w, http.StatusNotImplemented, "not_supported_error",
			"This server does not support embeddings. Start it with `--embeddings`")
		return
	}
	var q struct {
		Input    json.RawMessage `json:"input"`
		Encoding string          `json:"encoding_format"`
	}
	if !readJSON(w, r, &q) {
		return
	}
	inputs, err := splitInput(q.Input)
	if err != nil || (q.Encoding != "" && q.Encoding != "float" && q.Encoding != "base64") {
		fail(w, http.StatusBadRequest, "invalid_request_error", "\"input\" or \"encoding_format\" is not valid")
		return
	}
	tokens, data := 0, []any{}
	for i, in := range inputs {
		tokens += countTokens(len(in))
		data = append(data, map[string]any{
			"object": "embedding", "index": i, "embedding": encodeVector(vector(in, s.cfg.Params.EmbeddingDim), q.Encoding),
		})
	}
	s.stats.promptTokens.Add(int64(tokens))
	reply(w, map[string]any{
		"object": "list", "model": s.cfg.Alias, "data": data,
		"usage": map[string]any{"prompt_tokens": tokens, "total_tokens": tokens},
	})
}

// splitInput reads a string, a list of token numbers, or a list of either.
func splitInput(raw json.RawMessage) ([]string, error) {
	var one string
	if json.Unmarshal(raw, &one) == nil && len(raw) > 0 && raw[0] == '"' {
		return []string{one}, nil
	}
	var numbers []int
	if json.Unmarshal(raw, &numbers) == nil && len(numbers) > 0 {
		return []string{string(raw)}, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 {
		return nil, errors.New("input is empty or not a list")
	}
	out := make([]string, 0, len(list))
	for _, item := range list {
		in, err := splitInput(item)
		if err != nil || len(in) != 1 {
			return nil, errors.New("input holds something else than text or tokens")
		}
		out = append(out, in[0])
	}
	return out, nil
}

func vector(text string, dim int) []float32 {
	h := fnv.New64a()
	h.Write([]byte(text))
	rng := rand.New(rand.NewPCG(h.Sum64(), uint64(dim)))
	v, sum := make([]float32, dim), 0.0
	for i := range v {
		x := rng.NormFloat64()
		v[i] = float32(x)
		sum += x * x
	}
	for i := range v {
		v[i] = float32(float64(v[i]) / math.Sqrt(sum))
	}
	return v
}

// encodeVector gives numbers, or the little-endian bytes that SDKs ask for.
func encodeVector(v []float32, encoding string) any {
	if encoding != "base64" {
		return v
	}
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}
