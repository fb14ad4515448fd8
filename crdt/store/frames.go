package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// Badger loads what it is given: a length that a flipped bit made huge is allocated, an entry that no badger wrote ends the
// process when it is put to use. So what a backup holds is looked at before badger sees it. It is a sequence of frames
//
//	length (8, little endian) | protobuf: 1 entry, repeated
//	entry                       1 key, 2 value, 3 user meta, 4 version, 5 expiry, 6 meta
const (
	// maxFrame is above what badger puts into one frame, some 100 MiB.
	maxFrame = 256 << 20
	// maxRestored is above what one transaction holds.
	maxRestored = 4 << 20

	// keptMeta are the flags of badger that a backup may have: deleted, and earlier versions dropped.
	keptMeta = 1 | 4
)

// frames passes on one frame after the other, each after a look at it.
type frames struct {
	r    io.Reader
	rest []byte // of the frame that is passed on
}

func (f *frames) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func (f *frames) next() error {
	var head [8]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint64(head[:])
	if size > maxFrame {
		return fmt.Errorf("frame of %d bytes: %w", size, ErrBadBackup)
	}
	var frame bytes.Buffer
	frame.Write(head[:])
	if n, err := io.CopyN(&frame, f.r, int64(size)); err != nil {
		return fmt.Errorf("frame cut short after %d of %d bytes: %w: %w", n, size, ErrBadBackup, err)
	}
	err := eachField(frame.Bytes()[len(head):], func(field int, _ uint64, entry []byte) bool {
		return field != 1 || soundEntry(entry)
	})
	f.rest = frame.Bytes()
	return err
}

// soundEntry says whether an entry is one that a store may have written.
func soundEntry(entry []byte) bool {
	key := 0
	err := eachField(entry, func(field int, n uint64, data []byte) bool {
		switch field {
		case 1:
			key = len(data)
		case 2:
			return len(data) <= maxRestored
		case 4:
			return n < 1<<62
		case 6:
			return len(data) == 0 || data[0]&^keptMeta == 0
		}
		return true
	})
	return err == nil && key > 0 && key < 1<<15
}

// eachField goes through the fields of a protobuf message, which are numbers or bytes here, until one is not sound.
func eachField(data []byte, sound func(field int, n uint64, data []byte) bool) error {
	for len(data) > 0 {
		tag, size := binary.Uvarint(data)
		if size <= 0 {
			return fmt.Errorf("field: %w", ErrBadBackup)
		}
		n, more := binary.Uvarint(data[size:])
		if more <= 0 {
			return fmt.Errorf("field: %w", ErrBadBackup)
		}
		data = data[size+more:]
		var content []byte
		switch tag & 7 {
		case 0:
		case 2:
			if n > uint64(len(data)) {
				return fmt.Errorf("field cut short: %w", ErrBadBackup)
			}
			content, data = data[:n], data[n:]
		default:
			return fmt.Errorf("field of another type: %w", ErrBadBackup)
		}
		if tag>>3 > 100 || !sound(int(tag>>3), n, content) {
			return fmt.Errorf("entry that no store writes: %w", ErrBadBackup)
		}
	}
	return nil
}
