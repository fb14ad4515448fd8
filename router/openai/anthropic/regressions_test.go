package anthropic

import (
	"strings"
	"testing"
	"time"
)

// what is nested costs no more than its bytes.
func TestNestedContent(t *testing.T) {
	body := func(depth int) []byte {
		text := strings.Repeat("x", 2<<20)
		return []byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":` +
			strings.Repeat(`[{"type":"tool_result","tool_use_id":"a","content":`, depth) + `"` + text + `"` + strings.Repeat(`}]`, depth) + `}]}`)
	}
	took := func(depth int) time.Duration {
		began := time.Now()
		_, _ = Translate(body(depth), false)
		return time.Since(began)
	}
	flat, deep := took(1), took(240)
	t.Logf("2 MiB: %v at depth 1, %v at depth 240", flat, deep)
	if deep > 20*flat {
		t.Errorf("240 levels cost %d times as much: a body of 64 MiB takes about %v of a core", deep/flat, 32*deep)
	}
}
