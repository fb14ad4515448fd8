package mesh

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
)

// ours lists the goroutines that run code of this module, but for tests.
func ours() []string {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var out []string
	for _, g := range bytes.Split(buf, []byte("\n\n")) {
		text := string(g)
		if strings.Contains(text, "llmgw/mesh.(") && !strings.Contains(text, "testing.tRunner") {
			out = append(out, text)
		}
	}
	return out
}

func TestCloseLeavesNothingRunning(t *testing.T) {
	secret := bytes.Repeat([]byte{8}, 32)
	a := newBox(t, "a", withSecret(secret))
	b := newBox(t, "b", withSecret(secret, a.addr()))
	allLive(t, a, b)
	c := newBox(t, "c", withSecret(secret, a.addr()))
	allLive(t, a, b, c)
	for _, x := range []*box{a, b, c} {
		x.kill()
	}
	// Other tests that run in parallel would show here, so this one does not.
	var left []string
	eventuallyQuiet := func() bool { left = ours(); return len(left) == 0 }
	defer func() {
		if t.Failed() && len(left) > 0 {
			t.Logf("still running:\n%s", strings.Join(left, "\n\n"))
		}
	}()
	eventually(t, "all goroutines end", eventuallyQuiet)
}
