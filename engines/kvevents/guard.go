package kvevents

import (
	"encoding/binary"
	"errors"
	"net"
)

const (
	// maxMessage bounds the frames of a message, in bytes: a batch for a prompt of a
	// million tokens has some 6 MB.
	maxMessage = 32 << 20
	// greeting is what comes before the first frame, in bytes.
	greeting = 64
)

var errFrameSize = errors.New("message of KV events is too long")

// guarded reads along and fails before a message is read that is longer than
// maxMessage: the library takes memory for whatever length the other side says.
// See ZMTP 3.1, "Framing".
type guarded struct {
	net.Conn
	passed  uint64 // bytes of the greeting
	head    []byte // of a frame, as far as it has come
	body    uint64 // bytes of the frame's body that are still to come
	message uint64 // bytes of the message up to the end of this frame
}

// Read implements io.Reader.
func (g *guarded) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if wrong := g.follow(p[:n]); wrong != nil {
		return 0, wrong
	}
	return n, err
}

func (g *guarded) follow(p []byte) error {
	if g.passed < greeting {
		n := min(greeting-g.passed, uint64(len(p)))
		g.passed += n
		p = p[n:]
	}
	for len(p) > 0 {
		if g.body > 0 {
			n := min(g.body, uint64(len(p)))
			g.body -= n
			p = p[n:]
			continue
		}
		g.head = append(g.head, p[0])
		p = p[1:]
		const more, long = 1, 2 // flags: a frame follows; the length has eight bytes
		switch {
		case len(g.head) == 2 && g.head[0]&long == 0:
			g.body = uint64(g.head[1])
		case len(g.head) == 9:
			g.body = binary.BigEndian.Uint64(g.head[1:])
		default:
			continue
		}
		// Each frame counts, so that empty ones come to an end too.
		if g.body > maxMessage || g.message+g.body+1 > maxMessage {
			return errFrameSize
		}
		if g.message += g.body + 1; g.head[0]&more == 0 {
			g.message = 0
		}
		g.head = g.head[:0]
	}
	return nil
}
