package sim

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func TestAConversationIsComputedOnce(t *testing.T) {
	_, url := start(t, Config{Params: params(t, `{"llmgw_sim":1,"tokens":1,"cache_tokens":4000}`)})
	turns := []string{}
	ask := func(text string) (prompt, cached float64) {
		t.Helper()
		turns = append(turns, fmt.Sprintf(`{"role":"user","content":%q}`, text))
		status, v := post(t, url+"/v1/chat/completions", `{"messages":[`+strings.Join(turns, ",")+`]}`)
		if status != 200 {
			t.Fatalf("status %d", status)
		}
		usage, timings := v["usage"].(map[string]any), v["timings"].(map[string]any)
		cached = usage["prompt_tokens_details"].(map[string]any)["cached_tokens"].(float64)
		prompt = usage["prompt_tokens"].(float64)
		if timings["cache_n"] != cached || timings["prompt_n"] != prompt-cached {
			t.Errorf("usage %v, timings %v", usage, timings)
		}
		return prompt, cached
	}
	before, cached := ask(strings.Repeat("sea ", 500))
	if cached != 0 {
		t.Errorf("%v tokens of the first turn were cached", cached)
	}
	for range 3 {
		prompt, cached := ask("and what now?")
		if cached < before-1 || cached >= prompt {
			t.Errorf("%v of %v tokens were cached, the turn before had %v", cached, prompt, before)
		}
		before = prompt
	}
}

func TestWithoutACacheNothingIsWarm(t *testing.T) {
	var c promptCache
	c.computed([]byte("a long enough prompt"))
	if n := c.warm([]byte("a long enough prompt")); n != 0 {
		t.Errorf("%d tokens are warm", n)
	}
}

func TestPrefillTakesTheTimeOfWhatIsNew(t *testing.T) {
	p := params(t, `{"llmgw_sim":1,"tokens":1,"first_ms":100,"prefill_tps":1000,"cache_tokens":4000}`)
	for cached, want := range map[int]time.Duration{0: 600 * time.Millisecond, 400: 200 * time.Millisecond} {
		if got := (plan{prompt: 500, cached: cached}).first(p); got != want {
			t.Errorf("%d of 500 tokens cached: the first comes after %v, not %v", cached, got, want)
		}
	}
	if got := (plan{prompt: 500}).first(params(t, `{"llmgw_sim":1,"first_ms":7}`)); got != 7*time.Millisecond {
		t.Errorf("without a rate: %v", got)
	}
}

// The cache never holds more than its limit, is never wrong about a prefix, and
// tells of what it holds.
func TestCacheLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &publisher{shared: map[uint64]int{}}
		c := promptCache{limit: rapid.IntRange(1, 40).Draw(t, "limit"), events: p}
		var all [][]byte
		for range rapid.IntRange(1, 30).Draw(t, "n") {
			text := bytes.Repeat([]byte(rapid.SampledFrom([]string{"a", "b", "ab"}).Draw(t, "piece")), rapid.IntRange(1, 40).Draw(t, "times"))
			best := 0
			for _, had := range all {
				best = max(best, common(had, text))
			}
			if got := c.warm(text); got > best/bytesPerToken || got < 0 {
				t.Fatalf("%d tokens are warm, %d bytes are common", got, best)
			}
			c.computed(text)
			all = append(all, text)
			held, told := 0, map[uint64]int{}
			for e := c.lru.Front(); e != nil; e = e.Next() {
				held += countTokens(len(e.Value.([]byte)))
				for _, h := range blocks(e.Value.([]byte)) {
					told[h]++
				}
			}
			if diff := cmp.Diff(told, p.shared, cmpopts.EquateEmpty()); diff != "" {
				t.Fatal("blocks that are held and told: ", diff)
			}
			if held != c.held || held > c.limit {
				t.Fatalf("holds %d, says %d, may hold %d", held, c.held, c.limit)
			}
		}
	})
}
