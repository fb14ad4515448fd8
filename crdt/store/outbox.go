package store

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// The outbox holds what this store wrote itself and no peer is known to have: the part of each row that was written. After
// a re-seed it is written again, see Reseed.

// unsent is one entry of the outbox.
type unsent struct {
	seq uint64 // of the log entry that tells peers of it
	// made says that a write raised the row's Length: it made or deleted the row, and did not just edit one that
	// may be gone meanwhile.
	made bool
	part crdt.Row
}

func (u unsent) encode() ([]byte, error) {
	data, err := crdt.EncodeRow(u.part)
	if err != nil {
		return nil, err
	}
	made := byte(0)
	if u.made {
		made = 1
	}
	return append(append(number(u.seq), made), data...), nil
}

func decodeUnsent(key crdt.Key, value []byte) (unsent, error) {
	if len(value) < 9 {
		return unsent{}, fmt.Errorf("outbox entry %s cut short: %w", key, ErrCorrupt)
	}
	part, err := crdt.DecodeRow(value[9:])
	if err != nil {
		return unsent{}, fmt.Errorf("outbox entry %s: %w: %w", key, ErrCorrupt, err)
	}
	return unsent{seq: binary.BigEndian.Uint64(value), made: value[8] == 1, part: part}, nil
}

// post adds a local write to the outbox. had is the row before it.
func (b *batch) post(item crdt.Item, had crdt.Row) error {
	entry := unsent{seq: b.seq, made: item.Row.Length > had.Length, part: item.Row}
	if entry.made {
		b.raised = append(b.raised, item.Key)
	}
	value, known, err := get(b.txn, outboxKey(item.Key))
	if err != nil {
		return err
	}
	if known {
		old, err := decodeUnsent(item.Key, value)
		if err != nil {
			return err
		}
		entry.made = entry.made || old.made && old.part.Length == item.Row.Length
		entry.part = crdt.Merge(old.part, item.Row)
	}
	return b.putOutbox(item.Key, entry)
}

func (b *batch) putOutbox(key crdt.Key, entry unsent) error {
	value, err := entry.encode()
	if err != nil {
		return fmt.Errorf("outbox entry %s: %w", key, err)
	}
	b.sent[key] = entry.seq
	return b.set(outboxKey(key), value)
}

func (b *batch) dropOutbox(key crdt.Key) error {
	b.sent[key] = 0
	return b.remove(outboxKey(key))
}

// loadOutbox reads which rows are in the outbox.
func (s *Store) loadOutbox(txn *badger.Txn) error {
	s.outbox = map[crdt.Key]uint64{}
	return eachValue(txn, outboxPrefix, func(name string, value []byte) error {
		entry, err := decodeUnsent(crdt.Key(name), value)
		s.outbox[crdt.Key(name)] = entry.seq
		return err
	})
}

// clearOutbox drops what a peer holds: everything up to seq of the log. The caller holds writer.
func (s *Store) clearOutbox(seq uint64) error {
	for {
		b := s.begin()
		for key, at := range s.outbox {
			if b.full() {
				break
			}
			if at <= seq {
				if err := b.dropOutbox(key); err != nil {
					b.discard()
					return err
				}
			}
		}
		full := b.full()
		if err := b.commit(); err != nil {
			b.discard()
			return err
		}
		if !full {
			return nil
		}
	}
}

// doubtOutbox drops what was in the outbox when the store was opened, and what this process only added to rows that
// were made before. The caller holds writer.
func (s *Store) doubtOutbox() error {
	if err := s.clearOutbox(s.opened); err != nil {
		return err
	}
	b := s.begin()
	defer func() { b.discard() }()
	for _, key := range slices.Sorted(maps.Keys(s.outbox)) {
		if s.raised[key] {
			continue
		}
		value, _, err := get(b.txn, outboxKey(key))
		if err != nil {
			return err
		}
		entry, err := decodeUnsent(key, value)
		if err != nil {
			return err
		}
		entry.made = false
		if err := b.putOutbox(key, entry); err != nil {
			return err
		}
		if b.full() {
			if err := b.commit(); err != nil {
				return err
			}
			b = s.begin()
		}
	}
	return b.commit()
}

func outboxKey(key crdt.Key) []byte { return append([]byte(outboxPrefix), key...) }
