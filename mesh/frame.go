package mesh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// Bounds of one frame by purpose, in bytes.
const (
	maxHello    = 4 << 10
	maxJoin     = 1 << 20 // a whole roster
	maxSync     = 1 << 20 // a page, and a row that is larger by itself
	maxPresence = 1 << 20
	frameHead   = 4
)

// errFrame: the other side sent what no llmgw sends.
var errFrame = errors.New("malformed frame")

type codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

// codecs builds encoder and decoder once; they are immutable and may be shared.
var codecs = sync.OnceValue(func() codec {
	encOptions := cbor.CoreDetEncOptions()
	encOptions.TagsMd = cbor.TagsForbidden
	enc, err := encOptions.EncMode()
	if err != nil {
		panic("mesh: encoder options: " + err.Error())
	}
	dec, err := cbor.DecOptions{
		DupMapKey:       cbor.DupMapKeyEnforcedAPF,
		IndefLength:     cbor.IndefLengthForbidden,
		TagsMd:          cbor.TagsForbidden,
		MaxNestedLevels: 16,
	}.DecMode()
	if err != nil {
		panic("mesh: decoder options: " + err.Error())
	}
	return codec{enc: enc, dec: dec}
})

func marshal(v any) ([]byte, error) { return codecs().enc.Marshal(v) }

func unmarshal(data []byte, v any) error { return codecs().dec.Unmarshal(data, v) }

// encodeFrame is v as one frame: its length in four bytes, then CBOR.
func encodeFrame(v any) ([]byte, error) {
	body, err := marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode frame: %w", err)
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, frameHead+len(body)), uint32(len(body))), body...), nil
}

// writeFrame sends v in one write.
func writeFrame(w io.Writer, v any) error {
	frame, err := encodeFrame(v)
	if err != nil {
		return err
	}
	if _, err := w.Write(frame); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// frameStep is how much memory a frame gets ahead of its bytes: a peer that announces
// much and sends nothing costs little.
const frameStep = 16 << 10

// readFrame reads one frame of at most limit bytes into v. It reads no byte
// beyond it.
func readFrame(r io.Reader, limit int, v any) error {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("read frame: %w", err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > uint32(limit) {
		return fmt.Errorf("read frame of %d bytes, at most %d: %w", size, limit, errFrame)
	}
	body, err := readBody(r, int(size))
	if err != nil {
		return fmt.Errorf("read frame: %w", err)
	}
	if err := unmarshal(body, v); err != nil {
		return fmt.Errorf("decode frame: %w: %w", errFrame, err)
	}
	return nil
}

// readBody takes twice the memory with each step that came whole.
func readBody(r io.Reader, size int) ([]byte, error) {
	body := make([]byte, 0, min(size, frameStep))
	for len(body) < size {
		had := len(body)
		body = slices.Grow(body, min(size-had, max(had, frameStep)))
		body = body[:min(size, cap(body))]
		if _, err := io.ReadFull(r, body[had:]); errors.Is(err, io.EOF) {
			return nil, io.ErrUnexpectedEOF // within a frame
		} else if err != nil {
			return nil, err
		}
	}
	return body, nil
}
