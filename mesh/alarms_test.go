package mesh

import (
	"testing"
	"time"
)

func TestSkewIsSaidInWords(t *testing.T) {
	for skew, want := range map[time.Duration]string{
		0:                        "the same as",
		400 * time.Microsecond:   "the same as",
		-400 * time.Microsecond:  "the same as",
		90 * time.Second:         "1m30s ahead of",
		-1001 * time.Millisecond: "1.001s behind",
	} {
		if got := skewText(skew, time.Millisecond); got != want {
			t.Errorf("%v: %q, want %q", skew, got, want)
		}
	}
}
