package relay

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestTailIsTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []byte
		var kept tail
		for _, size := range rapid.SliceOfN(rapid.IntRange(0, 3*tailBytes), 0, 8).Draw(t, "sizes") {
			piece := make([]byte, size)
			for i := range piece {
				piece[i] = byte(len(all) + i*7)
			}
			all = append(all, piece...)
			kept.add(piece)
			if !bytes.HasSuffix(all, kept.b) || len(kept.b) < min(len(all), tailBytes) || len(kept.b) > 2*tailBytes {
				t.Fatalf("%d of %d bytes are kept", len(kept.b), len(all))
			}
		}
	})
}
