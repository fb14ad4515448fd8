package store

import (
	"fmt"
	"math"
	"time"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// asideLimit is how far ahead of this node's time a stamp may lie to be merged. Beyond it waits aside: shown
// in full to everybody, a row from a clock that is years off could be changed by nobody whose clock is right.
const asideLimit = 24 * time.Hour

// AsideCell is a cell that waits aside because its stamp lies too far ahead.
type AsideCell struct {
	Key   crdt.Key
	Cell  string
	By    crdt.ReplicaID
	Until time.Time // it is merged by the first merge after this time
}

// Aside lists what waits, in key order. It is kept on disk, is not passed on, and is merged by a later Merge or
// ReleaseAside.
func (s *Store) Aside() ([]AsideCell, error) {
	var cells []AsideCell
	err := s.view(func(txn *badger.Txn) error {
		return asideRows(txn, func(key crdt.Key, row crdt.Row) {
			for _, name := range row.Names() {
				c := row.Cells[name]
				cells = append(cells, AsideCell{Key: key, Cell: name, By: c.By, Until: c.At.Time().Add(-asideLimit)})
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list rows set aside: %w", err)
	}
	return cells, nil
}

// SetBehind tells the store that the caller knows this node's wall clock to be behind the mesh's by d, so that a
// node without a battery for its clock does not set the whole mesh aside. It counts for that limit only.
func (s *Store) SetBehind(d time.Duration) { s.behind.Store(int64(max(d, 0))) }

// ReleaseAside merges what waited and is no longer too far ahead. Merge does it too.
func (s *Store) ReleaseAside() ([]crdt.Key, error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.writable(); err != nil {
		return nil, err
	}
	changed, err := s.releaseAside()
	s.watches.notify(changed)
	return changed, err
}

// nearLimit is the highest stamp that is merged now. The hybrid clock counts as time that this node has seen: one that
// boots in 1970 still knows when it last ran.
func (s *Store) nearLimit() crdt.HLC {
	return s.clock.Reference(time.Duration(s.behind.Load())).Add(asideLimit)
}

// split parts an item into what may be merged and what must wait; either may be empty (Length 0).
func split(row crdt.Row, limit crdt.HLC) (near, far crdt.Row) {
	for name, c := range row.Cells {
		if c.At <= limit {
			continue
		}
		if far.Cells == nil {
			far = crdt.Row{Length: row.Length, Cells: map[string]crdt.Cell{}}
		}
		far.Cells[name] = c
	}
	if far.Length == 0 || len(far.Cells) == len(row.Cells) {
		if far.Length != 0 {
			return crdt.Row{}, far
		}
		return row, far
	}
	near = crdt.Row{Length: row.Length, Cells: map[string]crdt.Cell{}}
	for name, c := range row.Cells {
		if c.At <= limit {
			near.Cells[name] = c
		}
	}
	return near, far
}

// take merges what of an item may be merged and keeps the rest aside.
func (b *batch) take(item crdt.Item, limit crdt.HLC) error {
	near, far := split(item.Row, limit)
	if far.Length != 0 {
		if err := b.setAside(item.Key, far); err != nil {
			return err
		}
	}
	if near.Length == 0 {
		return nil
	}
	return b.merge(crdt.Item{Key: item.Key, Row: near})
}

func (b *batch) setAside(key crdt.Key, far crdt.Row) error {
	if err := key.Validate(); err != nil {
		return err
	}
	had, err := readAside(b.txn, key)
	if err != nil {
		return err
	}
	merged := crdt.Merge(had, far)
	if merged.Equal(had) {
		return nil
	}
	if err := b.putAside(key, merged); err != nil {
		return err
	}
	b.asideFrom = min(b.asideFrom, earliest(merged))
	return nil
}

func (b *batch) putAside(key crdt.Key, row crdt.Row) error {
	data, err := crdt.EncodeRow(row)
	if err != nil {
		return fmt.Errorf("set aside %s: %w", key, err)
	}
	return b.set(asideKey(key), data)
}

// releaseAside goes through what waits, as soon as the first of it is due. The caller holds writer.
func (s *Store) releaseAside() (changed []crdt.Key, err error) {
	limit := s.nearLimit()
	for s.asideFrom.Load() <= uint64(limit) {
		keys, err := s.releasePage(limit)
		changed = append(changed, keys...)
		if err != nil {
			return changed, fmt.Errorf("merge rows set aside: %w", err)
		}
	}
	return changed, nil
}

// releasePage merges a transaction's worth and finds out when the next is due.
func (s *Store) releasePage(limit crdt.HLC) ([]crdt.Key, error) {
	b := s.begin()
	defer b.discard()
	var due []crdt.Item
	size := 0
	next := crdt.HLC(math.MaxUint64)
	err := asideRows(b.txn, func(key crdt.Key, row crdt.Row) {
		if first := earliest(row); first > limit || len(due) > 0 && size > pageBytes/4 || len(due) == pageItems/2 {
			next = min(next, first)
			return
		}
		size += crdt.Item{Key: key, Row: row}.Size()
		due = append(due, crdt.Item{Key: key, Row: row})
	})
	if err != nil {
		return nil, err
	}
	for _, item := range due {
		if err := b.release(item, limit, &next); err != nil {
			return nil, err
		}
	}
	if err := b.commit(); err != nil {
		return nil, err
	}
	s.asideFrom.Store(uint64(next))
	return b.changed, nil
}

func (b *batch) release(item crdt.Item, limit crdt.HLC, next *crdt.HLC) error {
	near, far := split(item.Row, limit)
	if err := b.merge(crdt.Item{Key: item.Key, Row: near}); err != nil {
		return err
	}
	if far.Length == 0 {
		return b.remove(asideKey(item.Key))
	}
	*next = min(*next, earliest(far))
	return b.putAside(item.Key, far)
}

// loadAside finds out when the first waiting row is due.
func (s *Store) loadAside() error {
	first := crdt.HLC(math.MaxUint64)
	err := s.db.View(func(txn *badger.Txn) error {
		return asideRows(txn, func(_ crdt.Key, row crdt.Row) { first = min(first, earliest(row)) })
	})
	s.asideFrom.Store(uint64(first))
	return err
}

func earliest(row crdt.Row) crdt.HLC {
	first := crdt.HLC(math.MaxUint64)
	for _, c := range row.Cells {
		first = min(first, c.At)
	}
	return first
}

func asideRows(txn *badger.Txn, each func(crdt.Key, crdt.Row)) error {
	return eachValue(txn, asidePrefix, func(name string, value []byte) error {
		row, err := crdt.DecodeRow(value)
		if err != nil {
			return fmt.Errorf("row set aside %s: %w: %w", crdt.Key(name), ErrCorrupt, err)
		}
		each(crdt.Key(name), row)
		return nil
	})
}

func readAside(txn *badger.Txn, key crdt.Key) (crdt.Row, error) {
	value, known, err := get(txn, asideKey(key))
	if err != nil || !known {
		return crdt.Row{}, err
	}
	row, err := crdt.DecodeRow(value)
	if err != nil {
		return crdt.Row{}, fmt.Errorf("row set aside %s: %w: %w", key, ErrCorrupt, err)
	}
	return row, nil
}

func asideKey(key crdt.Key) []byte { return append([]byte(asidePrefix), key...) }
