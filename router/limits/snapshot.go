package limits

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"llmgw/crdt"

	"github.com/fxamacker/cbor/v2"
)

// A snapshot is what a head that starts asks another for: frames of a 32-bit length
// and that many bytes. The first says who counts as what, the others hold counts.
const (
	maxFrame  = 256 << 10
	maxFrames = 4096
	maxHeads  = 10_000
)

var errSnapshot = errors.New("no snapshot of rate counts")

type wireHead struct {
	_             struct{} `cbor:",toarray"`
	Peer          string
	Replica, Boot uint64
}

// Snapshot writes all counts that are known here.
func (l *Limiter) Snapshot(w io.Writer) error {
	l.mu.Lock()
	var authors []wireHead
	for peer, by := range l.heads.writes {
		authors = append(authors, wireHead{Peer: peer, Replica: uint64(by.Replica), Boot: by.Boot})
	}
	var entries []crdt.WindowEntry
	for _, m := range l.meters {
		for _, p := range m.panes {
			entries = append(entries, p.set.All()...)
		}
	}
	l.mu.Unlock()
	first, err := cbor.Marshal(authors)
	if err != nil {
		return fmt.Errorf("write heads: %w", err)
	}
	if err := writeFrame(w, first); err != nil {
		return err
	}
	for part := range slices.Chunk(entries, perMessage) {
		frame, err := crdt.EncodeWindows(part)
		if err != nil {
			return fmt.Errorf("write counts: %w", err)
		}
		if err := writeFrame(w, frame); err != nil {
			return err
		}
	}
	return nil
}

func writeFrame(w io.Writer, frame []byte) error {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(frame)))
	if _, err := w.Write(append(head, frame...)); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// TakeSnapshot joins what another head's Snapshot wrote.
func (l *Limiter) TakeSnapshot(r io.Reader) error {
	frame, err := readFrame(r)
	if err != nil {
		return err
	}
	var authors []wireHead
	if err := cbor.Unmarshal(frame, &authors); err != nil || len(authors) > maxHeads {
		return fmt.Errorf("heads: %w", errors.Join(errSnapshot, err))
	}
	l.mu.Lock()
	for _, a := range authors {
		if a.Peer != l.cfg.Peer {
			l.heads.wrote(a.Peer, crdt.Incarnation{Replica: crdt.ReplicaID(a.Replica), Boot: a.Boot})
		}
	}
	l.stale()
	l.mu.Unlock()
	for range maxFrames {
		frame, err := readFrame(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		entries, err := crdt.DecodeWindows(frame)
		if err != nil {
			return fmt.Errorf("%w: %w", errSnapshot, err)
		}
		l.mu.Lock()
		l.merge(entries, l.cfg.Now())
		l.mu.Unlock()
	}
	return fmt.Errorf("over %d frames: %w", maxFrames, errSnapshot)
}

// readFrame gives io.EOF at a clean end.
func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("%w: %w", errSnapshot, err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes: %w", n, errSnapshot)
	}
	frame := make([]byte, n)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, fmt.Errorf("%w: %w", errSnapshot, io.ErrUnexpectedEOF)
	}
	return frame, nil
}
