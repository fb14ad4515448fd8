package lab

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"llmgw/ui"
)

// said is what the test reads of an answer.
type said struct {
	Choices []struct {
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
	} `json:"choices"`
	Usage struct {
		Prompt  int `json:"prompt_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

// TestConversationStaysWarmOverAllHeads: a model has replicas on two boxes, and each
// turn of a conversation goes to another head. From the second turn on the engine
// finds the conversation so far in its cache.
func TestConversationStaysWarmOverAllHeads(t *testing.T) {
	t.Parallel()
	Warm(t)
	s := joinedScene(t)
	c := s.Box("c")
	c.Start()
	c.Join(s.a)
	for _, b := range []*Box{s.b, c} {
		b.CLI("engines", "install", "llamacpp")
		b.CLI("pull", SmolLM2, "--as", "smollm2")
	}
	// What is placed before both are known to have the weights is not spread.
	Eventually(t, readyWithin, "a knows the weights on both boxes", func() (bool, string) {
		models := JSON[ui.ModelList](s.a, "models").Models
		return len(models) == 1 && len(models[0].OnDisk) == 2, s.a.CLI("models")
	})
	s.a.CLI("scale", "smollm2", "--replicas", "2")
	for _, b := range []*Box{s.a, s.b, c} {
		b.AwaitReplicaOn("smollm2", s.b, readyWithin)
		b.AwaitReplicaOn("smollm2", c, readyWithin)
	}
	key := s.key()
	answers(t, s.atB(key), http.StatusOK)
	answers(t, s.laptop.API(c, key), http.StatusOK)
	heads := []*API{s.atA(key), s.atB(key), s.laptop.API(c, key)}
	messages := []map[string]string{{"role": "system", "content": "You are the keeper of a lighthouse. " + strings.Repeat("The sea is grey and the wind comes from the west. ", 20)}}
	before := 0
	for turn := range 10 {
		messages = append(messages, map[string]string{"role": "user", "content": "What do you see now?"})
		got, err := heads[turn%len(heads)].Ask(seconds(t, 60), http.MethodPost, "/v1/chat/completions",
			map[string]any{"model": "smollm2", "messages": messages, "max_tokens": 8, "temperature": 0})
		var answer said
		if err != nil || got.Status != http.StatusOK || json.Unmarshal([]byte(got.Body), &answer) != nil || len(answer.Choices) != 1 {
			t.Fatalf("turn %d: %v, %v", turn, got, err)
		}
		cached, prompt := answer.Usage.Details.Cached, answer.Usage.Prompt
		t.Logf("turn %d: %d of %d prompt tokens were cached", turn, cached, prompt)
		// The template may close a turn differently than the answer ended.
		if turn > 0 && cached < before*9/10 {
			t.Errorf("turn %d: %d tokens cached, the turn before had %d", turn, cached, before)
		}
		before = prompt
		messages = append(messages, map[string]string{"role": "assistant", "content": answer.Choices[0].Message.Content})
	}
}
