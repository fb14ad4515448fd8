// Package chattest owns what tests of translations from chat completions share.
package chattest

import (
	"fmt"
	"strings"
)

// SSE is a stream of events with these data.
func SSE(data ...string) string {
	var b strings.Builder
	for _, line := range data {
		fmt.Fprintf(&b, "data: %s\n\n", line)
	}
	return b.String()
}

// Translation turns an engine's stream into a client's.
type Translation interface {
	Feed(p []byte) []byte
	Finish() []byte
}

// Convert feeds a stream in pieces of size bytes and gives all that comes out.
func Convert(t Translation, stream string, size int) string {
	var out strings.Builder
	for stream != "" {
		n := min(size, len(stream))
		out.Write(t.Feed([]byte(stream[:n])))
		stream = stream[n:]
	}
	out.Write(t.Finish())
	return out.String()
}
