package store

import (
	"encoding/binary"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// Page is a piece of the local log with the rows as they are now.
type Page struct {
	Items   []crdt.Item
	IndexID uint64 // of the log that the page was read from
	Next    uint64 // pass to Since to go on; the cursor to keep once the items are merged
	More    bool   // there was more when the page was read
}

// Since returns rows that changed after the log entry seq, oldest change first, each row once and as it is now. The items
// encode to at most maxBytes, but for a single row that is larger by itself; crdt.Pack cuts it. A seq beyond the end of the
// log comes from another life of this store, so everything is returned from the start.
func (s *Store) Since(seq uint64, maxBytes int) (Page, error) {
	return s.SinceBut(seq, maxBytes, Known{})
}

// Known is what a peer has without having pulled it from this store: the present rows of all buckets of the digest but some, and in
// these the rows with some fingerprints. It counts for log entries up to Until.
type Known struct {
	Until   uint64
	Differs map[int]bool
	Has     map[uint64]bool // first 8 bytes of fingerprints
}

// has says whether a peer has a row, given by its encoding. Deletions it may lack anyway: they are in no digest.
func (k *Known) has(digest crdt.DigestKey, seq uint64, item crdt.Item, encoded []byte) bool {
	if seq > k.Until || !item.Row.Present() {
		return false
	}
	if !k.Differs[digest.Bucket(item.Key)] {
		return true
	}
	return k.Has[digest.Fingerprint(item.Key, encoded).Short()]
}

// SinceBut is Since without the rows that the peer has already.
func (s *Store) SinceBut(seq uint64, maxBytes int, known Known) (Page, error) {
	s.state.RLock()
	defer s.state.RUnlock()
	if s.closed {
		return Page{}, ErrClosed
	}
	if s.reseeding.Load() {
		return Page{}, ErrReseeding
	}
	// Rows numbered after this point may be committed and not yet on disk: a peer must not learn of them, or its cursor
	// would be ahead of this log after a power cut. It is read before the transaction begins, which therefore
	// holds all rows up to it.
	end := s.seq.Load()
	if seq > end {
		seq = 0
	}
	page := Page{IndexID: s.index.Load(), Next: seq}
	key, _ := s.digest.get()
	has := func(seq uint64, item crdt.Item, encoded []byte) bool { return known.has(key, seq, item, encoded) }
	err := s.db.View(func(txn *badger.Txn) error { return page.fill(txn, end, maxBytes, has) })
	if err != nil {
		return Page{}, fmt.Errorf("read log since %d: %w", seq, err)
	}
	return page, nil
}

// fill walks the log from p.Next to end. Once all is read, Next is end, so that a cursor reaches Sequence even when
// the last entries are stale.
func (p *Page) fill(txn *badger.Txn, end uint64, maxBytes int, has func(uint64, crdt.Item, []byte) bool) error {
	if p.Next == end {
		return nil // as nearly always; the block that the end is in need not be read
	}
	used := crdt.MessageOverhead
	err := eachLogged(txn, p.Next+1, func(seq uint64, key crdt.Key) (bool, error) {
		if seq > end {
			return false, nil
		}
		item, encoded, stale, err := logged(txn, change{seq, key})
		if err != nil {
			return false, err
		}
		if stale || has(seq, item, encoded) {
			p.Next = seq
			return true, nil
		}
		size := item.Size()
		if len(p.Items) > 0 && (used+size > maxBytes || len(p.Items) == crdt.MaxItems) {
			p.More = true
			return false, nil
		}
		p.Items = append(p.Items, item)
		p.Next = seq
		used += size
		return true, nil
	})
	if err == nil && !p.More {
		p.Next = end
	}
	return err
}

// logged returns the row that a log entry tells of, and its encoding, unless the entry is stale.
func logged(txn *badger.Txn, c change) (item crdt.Item, encoded []byte, stale bool, err error) {
	record, known, err := get(txn, rowKey(c.key))
	if err != nil {
		return crdt.Item{}, nil, false, err
	}
	at := c.seq // of a record that is cut short, which parseRecord says
	if !known {
		at = 0
	} else if len(record) >= 8 {
		at = beUint64(record)
	}
	if stale, err = staleEntry(txn, c, at); stale || err != nil {
		return crdt.Item{}, nil, stale, err
	}
	row, _, err := parseRecord(c.key, record)
	return crdt.Item{Key: c.key, Row: row}, record[8:], false, err
}

// Cursor says how far this store has pulled from a peer's log.
type Cursor struct {
	IndexID uint64 // of the peer's store; another one means that Seq is worth nothing
	Seq     uint64
	Proof   [16]byte // by which the peer knows again that it gave this out; zero: none
}

// Cursor returns how far the peer's log was pulled; the zero Cursor when it never was.
func (s *Store) Cursor(peer string) (Cursor, error) {
	var c Cursor
	err := s.view(func(txn *badger.Txn) error {
		value, known, err := get(txn, cursorKey(peer))
		if err != nil || !known {
			return err
		}
		if len(value) != 16+len(c.Proof) {
			return fmt.Errorf("%d bytes: %w", len(value), ErrCorrupt)
		}
		c = Cursor{IndexID: binary.BigEndian.Uint64(value), Seq: binary.BigEndian.Uint64(value[8:])}
		copy(c.Proof[:], value[16:])
		return nil
	})
	if err != nil {
		return Cursor{}, fmt.Errorf("read cursor of %s: %w", peer, err)
	}
	return c, nil
}

// SetCursor keeps how far a peer's log was pulled. It MUST be called after the items up to there are merged. It does not
// wait for the disk: a power cut may take it, as long as nothing else was written, and then some of the log is pulled again.
func (s *Store) SetCursor(peer string, c Cursor) error {
	if peer == "" || len(peer) > crdt.MaxKeyBytes {
		return fmt.Errorf("set cursor: peer of %d bytes: %w", len(peer), crdt.ErrMalformed)
	}
	s.writer.Lock()
	defer s.writer.Unlock()
	err := s.writable()
	if err == nil {
		err = s.db.Update(func(txn *badger.Txn) error { return txn.Set(cursorKey(peer), c.encode()) })
	}
	if err != nil {
		return fmt.Errorf("set cursor of %s: %w", peer, badgerError(err))
	}
	return nil
}

func (c Cursor) encode() []byte {
	return append(append(number(c.IndexID), number(c.Seq)...), c.Proof[:]...)
}

func cursorKey(peer string) []byte { return []byte(cursorPrefix + peer) }
