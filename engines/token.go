package engines

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"llmgw/mesh/catalog"
)

// openAIToken asks for one token, or for one vector where the model's
// architecture has no decoder.
func openAIToken(s catalog.Shard) TokenRequest {
	if s.Profile.Embeddings && encoderOnly(s.Model.Source.Architecture) {
		return TokenRequest{
			Path:  "/v1/embeddings",
			Body:  mustJSON(map[string]any{"model": s.Model.Name, "input": "Hi"}),
			Check: checkAnswer("data"),
		}
	}
	return TokenRequest{
		Path: "/v1/completions",
		Body: mustJSON(map[string]any{
			"model": s.Model.Name, "prompt": "Hi", "max_tokens": 1, "cache_prompt": false,
		}),
		Check: checkAnswer("choices"),
	}
}

// encoderOnly tells BERT's relatives (bert, nomic-bert, jina-bert-v2, ...),
// which embed and never complete.
func encoderOnly(architecture string) bool {
	return strings.Contains(architecture, "bert")
}

// checkAnswer wants a 200 whose JSON object has a non-empty list under field.
func checkAnswer(field string) func(int, []byte) error {
	return func(status int, body []byte) error {
		if status != http.StatusOK {
			return fmt.Errorf("status %d: %s", status, clip(body, 200))
		}
		var answer map[string]json.RawMessage
		if err := json.Unmarshal(body, &answer); err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
		var list []json.RawMessage
		if err := json.Unmarshal(answer[field], &list); err != nil || len(list) == 0 {
			return errors.New("answer has no " + field)
		}
		return nil
	}
}

func clip(b []byte, n int) string {
	if len(b) > n {
		b = b[:n]
	}
	return strings.ToValidUTF8(string(b), "?")
}

// mustJSON encodes values that are built from strings and numbers above, which
// cannot fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
