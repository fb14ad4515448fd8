package affinity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

const (
	// MaxMessage bounds a message: well under what gossip carries.
	MaxMessage = 32 << 10 // bytes
	// maxLoads of a message, at up to 24 bytes each.
	maxLoads = 512
	// maxShared links of one decision are told. Of a longer chain it is those
	// from a little before the first cold one on.
	maxShared = 512
	// overlap is what is told of the warm part where only the rest is told.
	overlap = 8

	messageVersion = 1
	hashBytes      = hashBits / 8
)

// Errors of messages and snapshots.
var (
	ErrMalformed = errors.New("malformed message")
	ErrVersion   = errors.New("message of an unknown version")
)

// message is what one head tells the others. On the wire, numbers being
// unsigned varints unless a width is given:
//
//	version (1 byte), boot (8), seq,
//	loads: count, each replica (8), pending, in flight, rate,
//	decisions: count, each replica (8), session (6), tokens before, links,
//	           each link hash (6), tokens
type message struct {
	boot, seq uint64
	loads     []loadOf
	decisions []decision
}

// loadOf is the load of one head at one replica: tokens and requests, and the
// prefill rate in tokens a second that it measured, 0 for none.
type loadOf struct {
	replica                 Replica
	pending, inFlight, rate int
}

// encode drops the last decisions where the message would be too long.
func encode(m message) []byte {
	b := append(make([]byte, 0, 1024), messageVersion)
	b = binary.BigEndian.AppendUint64(b, m.boot)
	b = binary.AppendUvarint(b, m.seq)
	b = binary.AppendUvarint(b, uint64(len(m.loads)))
	for _, l := range m.loads {
		b = binary.BigEndian.AppendUint64(b, uint64(l.replica))
		for _, n := range []int{l.pending, l.inFlight, l.rate} {
			b = binary.AppendUvarint(b, uint64(max(n, 0)))
		}
	}
	var body []byte
	count := uint64(0)
	for _, d := range m.decisions {
		// When half is used, what is warm already is left out.
		one := appendDecision(nil, d, len(b)+len(body) > MaxMessage/2)
		if len(b)+len(body)+len(one)+binary.MaxVarintLen16 > MaxMessage {
			break
		}
		body = append(body, one...)
		count++
	}
	b = binary.AppendUvarint(b, count)
	return append(b, body...)
}

func appendDecision(b []byte, d decision, short bool) []byte {
	first := 0
	if short || len(d.chain) > maxShared {
		first = max(d.depth-overlap, 0)
	}
	links := d.chain[first:min(len(d.chain), first+maxShared)]
	b = binary.BigEndian.AppendUint64(b, uint64(d.replica))
	b = appendHash(b, d.session)
	before := d.chain.to(first)
	b = binary.AppendUvarint(b, uint64(before))
	b = binary.AppendUvarint(b, uint64(len(links)))
	for _, l := range links {
		b = appendHash(b, l.Hash)
		b = binary.AppendUvarint(b, uint64(int(l.End)-before))
		before = int(l.End)
	}
	return b
}

func appendHash(b []byte, h Hash) []byte {
	var wide [8]byte
	binary.BigEndian.PutUint64(wide[:], uint64(h))
	return append(b, wide[8-hashBytes:]...)
}

// reader takes values off a message; the first fault sticks.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || len(r.b) < n {
		r.bad = true
		return make([]byte, n)
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte  { return r.take(1)[0] }
func (r *reader) u16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

func (r *reader) hash() Hash {
	var wide [8]byte
	copy(wide[8-hashBytes:], r.take(hashBytes))
	return Hash(binary.BigEndian.Uint64(wide[:]))
}

// uvarint takes a number up to limit.
func (r *reader) uvarint(limit uint64) uint64 {
	n, size := binary.Uvarint(r.b)
	if r.bad || size <= 0 || n > limit {
		r.bad = true
		return 0
	}
	r.b = r.b[size:]
	return n
}

func decode(b []byte) (message, error) {
	if len(b) > MaxMessage {
		return message{}, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	r := &reader{b: b}
	if v := r.byte(); !r.bad && v != messageVersion {
		return message{}, fmt.Errorf("%w: %d", ErrVersion, v)
	}
	m := message{boot: r.u64(), seq: r.uvarint(math.MaxUint64)}
	for range r.uvarint(maxLoads) {
		m.loads = append(m.loads, loadOf{
			replica: Replica(r.u64()), pending: int(r.uvarint(math.MaxInt32)), inFlight: int(r.uvarint(math.MaxInt32)),
			rate: int(r.uvarint(math.MaxInt32)),
		})
	}
	for range r.uvarint(tellings * queued) {
		m.decisions = append(m.decisions, r.decision())
		if r.bad {
			break
		}
	}
	if r.bad || len(r.b) > 0 {
		return message{}, fmt.Errorf("%w: at the last %d of %d bytes", ErrMalformed, len(r.b), len(b))
	}
	return m, nil
}

func (r *reader) decision() decision {
	d := decision{replica: Replica(r.u64()), session: r.hash()}
	end := uint32(r.uvarint(math.MaxInt32))
	n := r.uvarint(maxShared)
	if r.bad || uint64(len(r.b)) < n*(hashBytes+1) {
		r.bad = true
		return d
	}
	d.chain = make(Chain, n)
	for i := range d.chain {
		h := r.hash()
		end += uint32(r.uvarint(math.MaxUint16))
		d.chain[i] = Link{h, end}
	}
	return d
}
