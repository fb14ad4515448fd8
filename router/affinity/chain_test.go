package affinity

import (
	"bytes"
	"strings"
	"testing"
)

func built(elements ...string) Chain {
	b := NewBuilder("m")
	for _, e := range elements {
		b.Add([]byte(e))
	}
	return b.Chain()
}

// common counts equal links from the beginning on.
func common(a, b Chain) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func TestTurnsShareTheirBeginning(t *testing.T) {
	long := strings.Repeat("a system prompt ", 400)
	first := built(long, "hi")
	second := built(long, "hi", "hello", "and then")
	if n := common(first, second); n != len(first) {
		t.Errorf("%d of the first turn's %d blocks are in the second's chain", n, len(first))
	}
	// K5: what is behind the last whole block is hashed as well.
	if n := common(built(long, "image A"), built(long, "image B")); n != len(built(long)) {
		t.Errorf("%d blocks are equal, want those of the system prompt, %d", n, len(built(long)))
	}
}

func TestChainsDifferWhereThePromptsDo(t *testing.T) {
	base := bytes.Repeat([]byte("0123456789abcdef"), 8<<10)
	want := NewBuilder("m")
	want.Add(base)
	for _, at := range []int{0, 511, 512, 70_000, len(base) - 1} {
		changed := bytes.Clone(base)
		changed[at] ^= 1
		b := NewBuilder("m")
		b.Add(changed)
		n := common(want.Chain(), b.Chain())
		if n == len(b.Chain()) || b.Chain().to(n)*bytesPerToken > at || b.Chain().to(n+1)*bytesPerToken <= at {
			t.Errorf("byte %d changed: %d of %d blocks are equal, %d tokens", at, n, len(b.Chain()), b.Chain().to(n))
		}
	}
	if common(built("x"), func() Chain { b := NewBuilder("other"); b.Add([]byte("x")); return b.Chain() }()) != 0 {
		t.Error("two models share a prefix")
	}
	if NameHash("a", "bc") == NameHash("ab", "c") {
		t.Error("names run into each other")
	}
}

func TestChainIsBounded(t *testing.T) {
	b := NewBuilder("m")
	for range 3 * MaxLinks {
		b.Add([]byte("12345678"))
	}
	if len(b.Chain()) != MaxLinks || b.Tokens() != 6*MaxLinks {
		t.Errorf("%d links, %d tokens", len(b.Chain()), b.Tokens())
	}
	huge := NewBuilder("m")
	huge.Add(make([]byte, 64<<20))
	if n := len(huge.Chain()); n > 1024 || huge.Tokens() < 16<<20 || huge.Tokens() > 16<<20+n {
		t.Errorf("64 MiB are %d links, %d tokens", n, huge.Tokens())
	}
	for i := range huge.Chain() {
		if huge.Chain().tokens(i) > 0xffff {
			t.Fatalf("block %d has %d tokens", i, huge.Chain().tokens(i))
		}
	}
}
