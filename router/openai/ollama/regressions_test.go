package ollama

import (
	"strings"
	"testing"
	"time"
)

// two calls without IDs in a whole answer are two.
func TestCallsWithoutIDs(t *testing.T) {
	a := NewAnswer("m", false, time.Now)
	out, e := a.Whole([]byte(`{"choices":[{"message":{"tool_calls":[{"id":"","function":{"name":"a","arguments":"{\"x\":1}"}},{"id":"","function":{"name":"b","arguments":"{\"y\":2}"}}]},"finish_reason":"tool_calls"}]}`))
	if e != nil {
		t.Fatal(e)
	}
	if !strings.Contains(string(out), `"name":"b"`) {
		t.Errorf("the second call is lost: %s", out)
	}
}
