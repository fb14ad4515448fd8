package affinity

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"time"
)

const (
	// maxSnapshot bounds a snapshot. The newest blocks of each replica go.
	maxSnapshot = 8 << 20 // bytes
	blockBytes  = hashBytes + 4
)

// Snapshot writes what is warm where, for a head that joined or missed
// messages: version (1 byte), count of replicas, each replica (8 bytes), count
// of blocks, each block's hash (6), age (2, in units of 4 s) and tokens (2), the
// one used longest ago first.
func (p *Picker) Snapshot(w io.Writer, now time.Time) error {
	if _, err := w.Write(p.snapshot(now)); err != nil {
		return fmt.Errorf("write snapshot of warm prefixes: %w", err)
	}
	return nil
}

func (p *Picker) snapshot(now time.Time) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := binary.AppendUvarint([]byte{messageVersion}, uint64(len(p.replicas)))
	each := (maxSnapshot - 32*len(p.replicas)) / blockBytes / max(len(p.replicas), 1)
	for id, r := range p.replicas {
		b = binary.BigEndian.AppendUint64(b, uint64(id))
		b = r.index.appendNewest(b, each, stampOf(now))
	}
	return b
}

func (x *index) appendNewest(b []byte, most int, now stamp) []byte {
	i := x.oldest()
	for range x.blocks - most {
		i = x.at(i).newer()
	}
	b = binary.AppendUvarint(b, uint64(min(x.blocks, most)))
	for ; i != 0; i = x.at(i).newer() {
		at := x.at(i)
		b = appendHash(b, at.hash())
		b = binary.BigEndian.AppendUint16(b, uint16(at.stamp().age(now)))
		b = binary.BigEndian.AppendUint16(b, uint16(at.tokens()))
	}
	return b
}

// TakeSnapshot adds what another head believes to what this one does. Errors
// are of reading, or ErrMalformed and ErrVersion, which change nothing.
func (p *Picker) TakeSnapshot(src io.Reader, now time.Time) error {
	b, err := io.ReadAll(io.LimitReader(src, maxSnapshot+1))
	if err != nil {
		return fmt.Errorf("read snapshot of warm prefixes: %w", err)
	}
	r := &reader{b: b}
	if v := r.byte(); !r.bad && v != messageVersion {
		return fmt.Errorf("snapshot: %w: %d", ErrVersion, v)
	}
	replicas := make(map[Replica][]byte)
	for range r.uvarint(maxReplicas) {
		id := Replica(r.u64())
		replicas[id] = r.take(r.blocks())
		if r.bad {
			break
		}
	}
	if r.bad || len(r.b) > 0 {
		return fmt.Errorf("snapshot: %w", ErrMalformed)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off {
		return nil
	}
	for id, blocks := range replicas {
		if to := p.hear(id, now); to != nil {
			to.index.merge(blocks, stampOf(now))
		}
	}
	return nil
}

// blocks gives the bytes of a list of blocks, none if they are not all there.
func (r *reader) blocks() int {
	n := r.uvarint(math.MaxInt32)
	if n > uint64(len(r.b))/blockBytes {
		r.bad = true
		return 0
	}
	return int(n) * blockBytes
}

func (x *index) merge(blocks []byte, now stamp) {
	r := &reader{b: blocks}
	for len(r.b) > 0 {
		h, used, tokens := r.hash(), now-stamp(r.u16()), uint32(r.u16())
		if i, _ := x.find(h); i != 0 && x.at(i).stamp().age(now) < used.age(now) {
			used = x.at(i).stamp() // we know of a later use
		}
		x.touch(h, tokens, used)
	}
}
