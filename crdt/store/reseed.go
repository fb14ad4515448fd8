package store

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// ErrReseeding: the store is being re-seeded and does not tell its rows to peers, nor begins another re-seed.
var ErrReseeding = errors.New("store is being re-seeded")

// ErrReseedOver: the re-seed was finished or aborted, or the store was reset or rolled back meanwhile.
var ErrReseedOver = errors.New("re-seed has ended")

// Reseed brings an overdue store to what a peer holds. Rows merge into it beside the old ones, which stay readable; Finish
// swaps:
//
//   - A row that the peer holds too, deleted or not, is merged.
//   - A tombstone stays: it can only be of use.
//   - A present row that the peer does not hold, or holds the tombstone of an earlier life of, may have been deleted and
//     forgotten. It goes, unless this store itself made it, or
//     deleted it, and no peer was known to have that: then what it wrote is written again.
//
// A write counts as known to a peer once that peer's pull was noted by NoteAck; the mesh offers a write to a live peer
// before it acknowledges it, so that what is left here was written alone. One that others got by gossip only, and
// deleted while this node was away, would come back; one that only a peer had which is overdue too goes with it, when both
// re-seed from a third.
//
// Counters stay. Not finished, by a crash too, a re-seed leaves the store as it was.
type Reseed struct {
	store *Store
	index uint64 // another one since: the store was reset or rolled back, and this re-seed ended with it
	mu    sync.Mutex
	over  bool
}

// BeginReseed starts a re-seed. Until it ends, Since fails with ErrReseeding.
func (s *Store) BeginReseed() (*Reseed, error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.writable(); err != nil {
		return nil, err
	}
	if s.reseeding.Load() {
		return nil, ErrReseeding
	}
	if err := s.drop(stagePrefix); err != nil {
		return nil, fmt.Errorf("begin re-seed: %w", err)
	}
	s.reseeding.Store(true)
	return &Reseed{store: s, index: s.index.Load()}, nil
}

// Merge takes in rows or parts of rows of the peer.
func (r *Reseed) Merge(items []crdt.Item) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.store
	s.writer.Lock()
	defer s.writer.Unlock()
	if r.over || r.index != s.index.Load() {
		return ErrReseedOver
	}
	for len(items) > 0 {
		n, err := s.stage(items)
		if err != nil {
			return fmt.Errorf("re-seed: %w", err)
		}
		items = items[n:]
	}
	return nil
}

// stage keeps a transaction's worth of the peer's rows.
func (s *Store) stage(items []crdt.Item) (n int, err error) {
	if err := s.writable(); err != nil {
		return 0, err
	}
	b := s.begin()
	defer b.discard()
	for n < len(items) && !b.full() {
		key := items[n].Key
		if err := key.Validate(); err != nil {
			return 0, err
		}
		had, err := readStaged(b.txn, key)
		if err != nil {
			return 0, err
		}
		data, err := crdt.EncodeRow(crdt.Merge(had, items[n].Row))
		if err != nil {
			return 0, fmt.Errorf("row %s: %w", key, err)
		}
		if err := b.set(stageKey(key), data); err != nil {
			return 0, err
		}
		n++
	}
	return n, b.commit()
}

// Finish swaps. from, cursor and peerUptime are the peer, its log as far as it was pulled and the MeshUptime that it told.
// The store takes a new IndexID, and forgets its cursors of other peers. All watches fire.
func (r *Reseed) Finish(from string, cursor Cursor, peerUptime time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.store
	s.writer.Lock()
	defer s.writer.Unlock()
	// Readers wait: they see the old rows or the new ones.
	s.state.Lock()
	defer s.state.Unlock()
	if r.over || r.index != s.index.Load() {
		return ErrReseedOver
	}
	if err := s.writable(); err != nil {
		return err
	}
	swap := swap{phase: swapDrop, cursor: cursor, uptime: peerUptime, peer: from}
	if err := s.markSwap(swap); err != nil {
		return fmt.Errorf("re-seed: %w", err)
	}
	r.over = true
	defer s.reseeding.Store(false)
	if err := s.finishSwap(); err != nil {
		// The next Open goes on.
		s.failed = fmt.Errorf("%w: re-seed: %w", ErrFailed, err)
		return s.failed
	}
	s.watches.notifyAll()
	return nil
}

// Abort leaves the store as it was. It does nothing after Finish.
func (r *Reseed) Abort() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.store
	s.writer.Lock()
	defer s.writer.Unlock()
	if r.over || r.index != s.index.Load() {
		return nil
	}
	r.over = true
	s.reseeding.Store(false)
	return s.drop(stagePrefix)
}

// swap is the note of a swap that is under way.
type swap struct {
	phase  byte
	cursor Cursor
	uptime time.Duration
	peer   string
}

// Phases of a swap; each may be begun again after a crash.
const (
	swapDrop  = 1 // rows that the peer does not hold go, and all cursors
	swapApply = 2 // staged rows, then the outbox, are written
)

func (w swap) encode() []byte {
	data := append([]byte{w.phase}, number(w.cursor.IndexID)...)
	data = append(append(data, number(w.cursor.Seq)...), number(uint64(w.uptime))...)
	return append(data, w.peer...)
}

func decodeSwap(data []byte) (swap, error) {
	if len(data) < 25 {
		return swap{}, fmt.Errorf("note of a swap of %d bytes: %w", len(data), ErrCorrupt)
	}
	return swap{
		phase:  data[0],
		cursor: Cursor{IndexID: beUint64(data[1:]), Seq: beUint64(data[9:])},
		uptime: time.Duration(beUint64(data[17:])),
		peer:   string(data[25:]),
	}, nil
}

// markSwap notes the swap and takes the new index ID in one transaction.
func (s *Store) markSwap(w swap) error {
	index, err := s.random()
	if err != nil {
		return err
	}
	b := s.begin()
	defer b.discard()
	if err := errors.Join(b.set([]byte(sysIndex), number(index)), b.set([]byte(sysSwap), w.encode())); err != nil {
		return err
	}
	if err := b.commit(); err != nil {
		return err
	}
	s.index.Store(index)
	return nil
}

// finishSwap does what a noted swap has left to do, and nothing without such a note.
func (s *Store) finishSwap() error {
	value, pending, err := s.raw(sysSwap)
	if err != nil || !pending {
		return err
	}
	w, err := decodeSwap(value)
	if err != nil {
		return err
	}
	if w.phase == swapDrop {
		if err := s.dropUnstaged(); err != nil {
			return err
		}
		w.phase = swapApply
		if err := s.setRaw(sysSwap, w.encode()); err != nil {
			return err
		}
	}
	for more := true; more; {
		if more, err = s.applyStaged(); err != nil {
			return err
		}
	}
	if err := s.resend(); err != nil {
		return err
	}
	return s.endSwap(w)
}

// dropUnstaged removes the present rows that the peer does not hold, and all cursors: what the dropped rows' authors still have is
// to be pulled again.
func (s *Store) dropUnstaged() error {
	if err := s.drop(cursorPrefix); err != nil {
		return err
	}
	gone := map[crdt.Key]bool{}
	err := s.db.View(func(txn *badger.Txn) error {
		for _, prefix := range []string{rowPrefix, asidePrefix} {
			for _, name := range keysOf(txn, []byte(prefix), math.MaxInt) {
				key := crdt.Key(name[len(prefix):])
				unknown, err := unknownToPeer(txn, prefix, key)
				if err != nil {
					return err
				}
				if unknown {
					gone[key] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	keys := slices.Sorted(maps.Keys(gone))
	for len(keys) > 0 {
		if keys, err = s.dropPage(keys); err != nil {
			return err
		}
	}
	return nil
}

// unknownToPeer says that the peer does not hold the life that a row of this store, or one set aside, is in.
func unknownToPeer(txn *badger.Txn, prefix string, key crdt.Key) (bool, error) {
	staged, err := readStaged(txn, key)
	if err != nil || staged.Present() {
		return false, err
	}
	read := readAside
	if prefix == rowPrefix {
		read = func(txn *badger.Txn, key crdt.Key) (crdt.Row, error) {
			row, _, err := readRow(txn, key)
			return row, err
		}
	}
	own, err := read(txn, key)
	return own.Length > staged.Length, err
}

func (s *Store) dropPage(keys []crdt.Key) (rest []crdt.Key, err error) {
	b := s.begin()
	defer b.discard()
	for len(keys) > 0 && !b.full() {
		row, encoded, seq, err := readRecord(b.txn, keys[0])
		if err != nil {
			return nil, err
		}
		gone := [][]byte{asideKey(keys[0])}
		if row.Present() {
			b.marks = append(b.marks, marksOf(b.digestKey, keys[0], encoded)...)
			gone = append(gone, rowKey(keys[0]))
			b.retire(seq)
		}
		if err := b.removeAll(gone...); err != nil {
			return nil, err
		}
		keys = keys[1:]
	}
	if err := b.set([]byte(sysFloor), number(b.seq)); err != nil {
		return nil, err
	}
	return keys, b.commit()
}

// applyStaged writes a transaction's worth of staged rows.
func (s *Store) applyStaged() (more bool, err error) {
	b := s.begin()
	defer b.discard()
	limit := s.nearLimit()
	for _, staged := range keysOf(b.txn, []byte(stagePrefix), pageItems) {
		if b.full() {
			more = true
			break
		}
		key := crdt.Key(staged[len(stagePrefix):])
		row, err := readStaged(b.txn, key)
		if err != nil {
			return false, err
		}
		if err := b.take(crdt.Item{Key: key, Row: row}, limit); err != nil {
			return false, err
		}
		if err := b.remove(staged); err != nil {
			return false, err
		}
		more = true
	}
	return more, b.commit()
}

// resend writes the outbox again, as far as it still counts.
func (s *Store) resend() error {
	var all []crdt.Item
	entries := map[crdt.Key]unsent{}
	err := s.db.View(func(txn *badger.Txn) error {
		return eachValue(txn, outboxPrefix, func(name string, value []byte) error {
			key := crdt.Key(name)
			entry, err := decodeUnsent(key, value)
			entries[key] = entry
			all = append(all, crdt.Item{Key: key, Row: entry.part})
			return err
		})
	})
	for len(all) > 0 && err == nil {
		b := s.begin()
		for len(all) > 0 && !b.full() && err == nil {
			err = b.resend(all[0].Key, entries[all[0].Key])
			all = all[1:]
		}
		if err == nil {
			err = b.commit()
		}
		b.discard()
	}
	return err
}

func (b *batch) resend(key crdt.Key, entry unsent) error {
	row, _, err := readRow(b.txn, key)
	if err != nil {
		return err
	}
	if row.Length > entry.part.Length || row.Length < entry.part.Length && !entry.made {
		return b.dropOutbox(key)
	}
	if err := b.merge(crdt.Item{Key: key, Row: entry.part}); err != nil {
		return err
	}
	if _, entry.seq, err = readRow(b.txn, key); err != nil {
		return err
	}
	return b.putOutbox(key, entry)
}

// endSwap ends the swap and with it that the store is overdue.
func (s *Store) endSwap(w swap) error {
	next := s.times
	next.mesh, next.synced = max(next.mesh, w.uptime), max(next.synced, w.uptime)
	b := s.begin()
	defer b.discard()
	err := errors.Join(
		b.set(cursorKey(w.peer), w.cursor.encode()),
		b.set([]byte(sysTimes), next.encode()),
		b.remove([]byte(sysRestored)),
		b.remove([]byte(sysSwap)),
	)
	if err != nil {
		return err
	}
	if err := b.commit(); err != nil {
		return err
	}
	s.times = next
	s.restored.Store(false)
	return nil
}

func readStaged(txn *badger.Txn, key crdt.Key) (crdt.Row, error) {
	value, known, err := get(txn, stageKey(key))
	if err != nil || !known {
		return crdt.Row{}, err
	}
	row, err := crdt.DecodeRow(value)
	if err != nil {
		return crdt.Row{}, fmt.Errorf("staged row %s: %w: %w", key, ErrCorrupt, err)
	}
	return row, nil
}

func stageKey(key crdt.Key) []byte { return append([]byte(stagePrefix), key...) }
