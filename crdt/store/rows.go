package store

import (
	"encoding/binary"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// A page of a merge is committed when it reached one of these: far enough below what one badger transaction
// takes (15 % of a memtable) that the next row, of whatever size, still fits.
const (
	pageItems = 1000
	pageBytes = 1 << 20

	// largeValue is from where on badger keeps a value in its value log.
	largeValue = 1 << 20
)

// batch is one badger transaction being filled. It is the only thing that writes rows and adds to the log.
type batch struct {
	store   *Store
	txn     *badger.Txn
	seq     uint64
	bytes   int
	writes  int
	changed []crdt.Key
	marks   []mark
	sent    map[crdt.Key]uint64 // outbox entries written; 0: dropped
	raised  []crdt.Key          // rows that the local write made or deleted
	// digestKey cannot change while the writer is held.
	digestKey crdt.DigestKey
	// asideFrom is the lowest stamp of what the batch set aside.
	asideFrom crdt.HLC
	ceiling   crdt.HLC // of the clock, when the batch raises it

	told    []change      // entries for the log
	retired []uint64      // numbers of entries that are stale with the batch
	blocks  []packedBlock // written for what is told
}

// begin starts a batch. The caller holds writer, and ends the batch by commit or discard.
func (s *Store) begin() *batch {
	key, _ := s.digest.get()
	return &batch{
		store: s, txn: s.db.NewTransaction(true), seq: s.seq.Load(), sent: map[crdt.Key]uint64{},
		digestKey: key, asideFrom: crdt.HLC(s.asideFrom.Load()),
	}
}

// merge joins one item into its row.
func (b *batch) merge(item crdt.Item) error {
	return b.apply(item.Key, joinRow(b.txn, b.digestKey, item))
}

// joined is what an item makes of its row.
type joined struct {
	had, now crdt.Row // without their cells
	name     []byte   // the row's key in the database
	record   []byte   // what to store under it, without its number; nil when nothing changes
	logged   uint64   // number of its log entry
	marks    []mark
	err      error
}

// joinRow reads a row and joins an item into it.
func joinRow(txn *badger.Txn, digest crdt.DigestKey, item crdt.Item) (j joined) {
	if j.err = item.Key.Validate(); j.err != nil {
		return j
	}
	j.name = rowKey(item.Key)
	known, err := look(txn, j.name, func(record []byte) error {
		if len(record) < numberBytes {
			return errShortRecord
		}
		return j.join(digest, item, record)
	})
	if err == nil && !known {
		err = j.join(digest, item, nil)
	}
	j.err = err
	return j
}

// join joins an item into a record, which is nil when there is none.
func (j *joined) join(digest crdt.DigestKey, item crdt.Item, record []byte) (err error) {
	var before []byte
	if record != nil {
		j.logged, before = beUint64(record), record[numberBytes:]
	}
	j.had.Length, j.record, err = crdt.MergeEncoded(numberBytes, before, item.Row)
	if err != nil && record != nil {
		// Which of both is malformed?
		if _, _, damage := parseRecord(item.Key, record); damage != nil {
			return damage
		}
	}
	if err != nil || j.record == nil {
		return err
	}
	j.now.Length = max(j.had.Length, item.Row.Length)
	after := j.record[numberBytes:]
	if !j.had.Present() {
		before = nil
	}
	if !j.now.Present() {
		after = nil
	}
	j.marks = marksOf(digest, item.Key, before, after)
	return nil
}

// apply writes what was joined: the one way by which any row changes.
func (b *batch) apply(key crdt.Key, j joined) error {
	if j.err != nil {
		return fmt.Errorf("row %s: %w", key, j.err)
	}
	if j.record == nil {
		return nil
	}
	b.seq++
	binary.BigEndian.PutUint64(j.record, b.seq)
	if err := b.set(j.name, j.record); err != nil {
		return err
	}
	b.tell(key, j.logged)
	b.marks = append(b.marks, j.marks...)
	b.changed = append(b.changed, key)
	return b.age(key, j.had, j.now)
}

// writeLocal merges what this store wrote itself, and posts it.
func (b *batch) writeLocal(item crdt.Item) error {
	had, _, err := readRow(b.txn, item.Key)
	if err != nil {
		return err
	}
	if err := b.merge(item); err != nil {
		return err
	}
	return b.post(item, had)
}

// marksOf lets states of a row enter the digest, or leave it. A nil state is not in it.
func marksOf(digest crdt.DigestKey, key crdt.Key, states ...[]byte) (marks []mark) {
	bucket := digest.Bucket(key)
	marks = make([]mark, 0, len(states))
	for _, encoded := range states {
		if encoded != nil {
			marks = append(marks, mark{bucket, digest.Fingerprint(key, encoded)})
		}
	}
	return marks
}

// set writes any key of the database as part of the batch.
func (b *batch) set(key, value []byte) error {
	b.writes++
	b.bytes += len(key) + len(value)
	b.store.large = b.store.large || len(value) >= largeValue
	return badgerError(b.txn.Set(key, value))
}

func (b *batch) remove(key []byte) error {
	b.writes++
	b.bytes += len(key)
	return badgerError(b.txn.Delete(key))
}

func (b *batch) removeAll(keys ...[]byte) error {
	for _, key := range keys {
		if err := b.remove(key); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) full() bool {
	return len(b.changed) >= pageItems || b.writes >= 4*pageItems || b.bytes >= pageBytes
}

// commit makes the batch durable and lets readers of the log see it.
func (b *batch) commit() error {
	if b.writes == 0 {
		b.txn.Discard()
		return nil
	}
	if err := b.writeLog(); err != nil {
		return err
	}
	if err := b.store.commit(b.txn); err != nil {
		return err
	}
	b.store.saved = max(b.store.saved, b.ceiling)
	// In this order: see DigestUntil.
	b.store.digest.apply(b.marks)
	b.store.seq.Store(b.seq)
	b.store.asideFrom.Store(uint64(b.asideFrom))
	for _, key := range b.raised {
		b.store.raised[key] = true
	}
	for key, seq := range b.sent {
		if seq == 0 {
			delete(b.store.outbox, key)
			delete(b.store.raised, key)
			continue
		}
		b.store.outbox[key] = seq
	}
	b.store.blocks.take(b)
	b.store.tidyLog()
	return nil
}

func (b *batch) discard() { b.txn.Discard() }

// Get returns a row. The bool says whether the row is present; of a deleted row the tombstone is returned with false.
func (s *Store) Get(k crdt.Key) (crdt.Row, bool, error) {
	var row crdt.Row
	err := s.view(func(txn *badger.Txn) (err error) {
		row, _, err = readRow(txn, k)
		return err
	})
	return row, row.Present(), err
}

// List returns the present rows of a namespace in the order of their keys.
func (s *Store) List(namespace string) ([]crdt.Item, error) {
	var items []crdt.Item
	err := s.view(func(txn *badger.Txn) error {
		prefix := rowKey(crdt.NewKey(namespace))
		it := txn.NewIterator(badger.IteratorOptions{Prefix: prefix, PrefetchValues: true, PrefetchSize: 100})
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			key := crdt.Key(it.Item().Key()[len(rowPrefix):])
			record, err := it.Item().ValueCopy(nil)
			if err != nil {
				return fmt.Errorf("read row %s: %w", key, err)
			}
			row, _, err := parseRecord(key, record)
			if err != nil {
				return err
			}
			if row.Present() {
				items = append(items, crdt.Item{Key: key, Row: row})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", namespace, err)
	}
	return items, nil
}

// readRow returns a row and the number of its log entry; a row that was never made is the zero Row and 0.
func readRow(txn *badger.Txn, key crdt.Key) (crdt.Row, uint64, error) {
	row, _, seq, err := readRecord(txn, key)
	return row, seq, err
}

// readRecord is readRow with the canonical encoding of the row.
func readRecord(txn *badger.Txn, key crdt.Key) (row crdt.Row, encoded []byte, seq uint64, err error) {
	if err := key.Validate(); err != nil {
		return crdt.Row{}, nil, 0, err
	}
	record, known, err := get(txn, rowKey(key))
	if err != nil || !known {
		return crdt.Row{}, nil, 0, err
	}
	row, seq, err = parseRecord(key, record)
	if err != nil {
		return crdt.Row{}, nil, 0, err
	}
	return row, record[numberBytes:], seq, nil
}

// numberBytes is what the number of its log entry takes at the beginning of a record.
const numberBytes = 8

var errShortRecord = fmt.Errorf("record cut short: %w", ErrCorrupt)

func parseRecord(key crdt.Key, record []byte) (crdt.Row, uint64, error) {
	if len(record) < numberBytes {
		return crdt.Row{}, 0, fmt.Errorf("row %s: %w", key, errShortRecord)
	}
	row, err := crdt.DecodeRow(record[numberBytes:])
	if err != nil {
		return crdt.Row{}, 0, fmt.Errorf("row %s: %w: %w", key, ErrCorrupt, err)
	}
	return row, binary.BigEndian.Uint64(record), nil
}

func rowKey(key crdt.Key) []byte { return append([]byte(rowPrefix), key...) }

func logKey(seq uint64) []byte { return binary.BigEndian.AppendUint64([]byte(logPrefix), seq) }

func parseLogKey(key []byte) (uint64, error) {
	if len(key) != len(logPrefix)+8 {
		return 0, fmt.Errorf("log key of %d bytes: %w", len(key), ErrCorrupt)
	}
	return binary.BigEndian.Uint64(key[len(logPrefix):]), nil
}
