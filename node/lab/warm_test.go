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

// warmth is a conversation with a model that two boxes serve, over three heads.
type warmth struct {
	scene
	c        *Box
	heads    []*API // of a, b and c
	messages []map[string]string
	before   int // prompt tokens of the last turn
	turns    int
}

func warmScene(t *testing.T) *warmth {
	t.Helper()
	s := joinedScene(t)
	w := &warmth{scene: s, c: s.Box("c")}
	w.c.Start()
	w.c.Join(s.a)
	for _, b := range []*Box{s.b, w.c} {
		b.CLI("engines", "install", "llamacpp")
		b.CLI("pull", SmolLM2, "--as", "smollm2")
	}
	knowWeights(t, 2, s.a, s.b, w.c)
	s.a.CLI("scale", "smollm2", "--replicas", "2")
	for _, b := range []*Box{s.a, s.b, w.c} {
		b.AwaitReplicaOn("smollm2", s.b, readyWithin)
		b.AwaitReplicaOn("smollm2", w.c, readyWithin)
	}
	key := s.key()
	answers(t, s.atB(key), http.StatusOK)
	answers(t, s.laptop.API(w.c, key), http.StatusOK)
	w.heads = []*API{s.atA(key), s.atB(key), s.laptop.API(w.c, key)}
	w.messages = []map[string]string{{"role": "system", "content": "You are the keeper of a lighthouse. " + strings.Repeat("The sea is grey and the wind comes from the west. ", 20)}}
	return w
}

// knowWeights waits until each of the boxes knows that n have the only model's
// weights: what is placed before that is not spread.
func knowWeights(t *testing.T, n int, boxes ...*Box) {
	t.Helper()
	for _, b := range boxes {
		Eventually(t, readyWithin, b.Name+" knows the weights on all boxes", func() (bool, string) {
			models := JSON[ui.ModelList](b, "models").Models
			return len(models) == 1 && len(models[0].OnDisk) == n, b.CLI("models")
		})
	}
}

// turn says the next thing to a head, and tells how many tokens of the prompt the
// engine had in its cache.
func (w *warmth) turn(t *testing.T, head *API) (cached int) {
	t.Helper()
	w.messages = append(w.messages, map[string]string{"role": "user", "content": "What do you see now?"})
	got, err := head.Ask(seconds(t, 60), http.MethodPost, "/v1/chat/completions",
		map[string]any{"model": "smollm2", "messages": w.messages, "max_tokens": 8, "temperature": 0})
	var answer said
	if err != nil || got.Status != http.StatusOK || json.Unmarshal([]byte(got.Body), &answer) != nil || len(answer.Choices) != 1 {
		t.Fatalf("turn %d: %v, %v", w.turns, got, err)
	}
	cached, w.before = answer.Usage.Details.Cached, answer.Usage.Prompt
	t.Logf("turn %d: %d of %d prompt tokens were cached", w.turns, cached, w.before)
	w.turns++
	w.messages = append(w.messages, map[string]string{"role": "assistant", "content": answer.Choices[0].Message.Content})
	return cached
}

// TestConversationStaysWarmOverAllHeads: a model has replicas on two boxes, and each
// turn of a conversation goes to another head. From the second turn on the engine
// finds the conversation so far in its cache.
func TestConversationStaysWarmOverAllHeads(t *testing.T) {
	t.Parallel()
	Warm(t)
	w := warmScene(t)
	for turn := range 10 {
		before := w.before
		// The template may close a turn differently than the answer ended.
		if cached := w.turn(t, w.heads[turn%len(w.heads)]); turn > 0 && cached < before*9/10 {
			t.Errorf("turn %d: %d tokens cached, the turn before had %d", turn, cached, before)
		}
	}
}

// TestConversationStaysWarmOverADrain: the box that has a conversation's cache ends in
// the middle of it, and says so. The other one goes on with a warm cache.
func TestConversationStaysWarmOverADrain(t *testing.T) {
	t.Parallel()
	Warm(t)
	w := warmScene(t)
	for turn := range 4 {
		w.turn(t, w.heads[turn%len(w.heads)])
	}
	holder := w.holder(t)
	t.Logf("box %s has the conversation and ends", holder.Name)
	holder.Stop()
	for turn := range 3 {
		before := w.before
		if cached := w.turn(t, w.heads[0]); cached < before*9/10 {
			t.Errorf("turn %d after the drain: %d tokens cached, the turn before had %d", turn, cached, before)
		}
	}
}

// holder finds the box whose engine has the conversation, as heads believe.
func (w *warmth) holder(t *testing.T) *Box {
	t.Helper()
	admin := w.laptop.API(w.a, w.a.CLI("keys", "new", "explainer", "--scope", "admin"))
	admin.Header = http.Header{"X-Llmgw-Explain": {"1"}}
	got, err := admin.Ask(seconds(t, 60), http.MethodPost, "/v1/chat/completions", map[string]any{"model": "smollm2", "messages": w.messages})
	var told struct {
		Candidates []struct {
			Node   string `json:"node"`
			Chosen bool   `json:"chosen"`
			Warm   int    `json:"warm_tokens"`
		} `json:"candidates"`
	}
	if err != nil || json.Unmarshal([]byte(got.Body), &told) != nil {
		t.Fatalf("explain: %v, %v", got, err)
	}
	for _, c := range told.Candidates {
		for _, b := range []*Box{w.b, w.c} {
			if c.Chosen && c.Warm > 0 && c.Node == b.Name {
				return b
			}
		}
	}
	t.Fatalf("nobody has the conversation: %s", got.Body)
	return nil
}
