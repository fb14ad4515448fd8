package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// schemaVersion is raised when the layout in the package comment changes in a way that older builds would misread.
const schemaVersion = 2

const (
	asidePrefix   = "a/"
	counterPrefix = "c/"
	logPrefix     = "g/"
	sysPrefix     = "m/sys/"
	metaPrefix    = "m/user/"
	stagePrefix   = "n/"
	outboxPrefix  = "o/"
	cursorPrefix  = "p/"
	rowPrefix     = "r/"
	agePrefix     = "t/"
	usagePrefix   = "u/"
)

const (
	sysSchema  = sysPrefix + "schema"
	sysID      = sysPrefix + "id"
	sysIndex   = sysPrefix + "index"
	sysCeiling = sysPrefix + "ceiling"
	sysReset   = sysPrefix + "reset" // present while a reset has not dropped everything yet
	sysSwap    = sysPrefix + "swap"  // present while a re-seed is being swapped in
	sysTimes   = sysPrefix + "uptime"
	sysFloor   = sysPrefix + "floor" // the log has had numbers up to here; set when entries are removed
	// sysRestored is present while the store is overdue because it was restored or rolled back.
	sysRestored  = sysPrefix + "restored"
	sysDigestKey = sysPrefix + "digest_key"
	formerPrefix = sysPrefix + "former/"
	dayPrefix    = sysPrefix + "day/"  // per day, the number of its first usage record
	sysDropped   = sysPrefix + "spend" // spending of months before this one was dropped
)

// load checks the schema before anything is written, makes a new store's identity and reads the state kept in memory.
func (s *Store) load(dir string, o Options) error {
	have, known, err := s.number(sysSchema)
	if err != nil {
		return err
	}
	if known && have > schemaVersion {
		return &NewerSchemaError{Have: have, Known: schemaVersion, Dir: dir}
	}
	if known && have < schemaVersion {
		return fmt.Errorf("schema %d, which this llmgw does not read any more: %w", have, ErrCorrupt)
	}
	if !known {
		if err := s.create(); err != nil {
			return fmt.Errorf("create: %w", err)
		}
	}
	if err := s.loadState(o); err != nil {
		return err
	}
	if err := s.scanAtOpen(); err != nil {
		return err
	}
	if err := s.finishReset(); err != nil {
		return err
	}
	if err := s.finishSwap(); err != nil {
		return err
	}
	if err := s.drop(stagePrefix); err != nil {
		return err
	}
	s.opened = s.seq.Load()
	return s.loadLedger()
}

// create gives an empty database its schema and identity, all or nothing.
func (s *Store) create() error {
	empty := true
	err := s.db.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{})
		defer it.Close()
		it.Rewind()
		empty = !it.Valid()
		return nil
	})
	if err != nil {
		return err
	}
	if !empty {
		return fmt.Errorf("data without a schema version: %w", ErrCorrupt)
	}
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	for _, name := range []string{sysID, sysIndex} {
		id, err := s.random()
		if err != nil {
			return err
		}
		if err := txn.Set([]byte(name), number(id)); err != nil {
			return err
		}
	}
	if err := txn.Set([]byte(sysSchema), number(schemaVersion)); err != nil {
		return err
	}
	return s.commit(txn)
}

func (s *Store) loadState(o Options) error {
	values := map[string]uint64{}
	for _, name := range []string{sysID, sysIndex, sysCeiling} {
		n, known, err := s.number(name)
		if err != nil {
			return err
		}
		if !known && name != sysCeiling {
			return fmt.Errorf("%s is missing: %w", name, ErrCorrupt)
		}
		values[name] = n
	}
	s.id.Store(values[sysID])
	s.index.Store(values[sysIndex])
	s.saved = crdt.HLC(values[sysCeiling])
	s.clock = crdt.NewClock(o.Now, s.saved, s.saveCeiling)
	return errors.Join(s.loadAside(), s.loadTimes(), s.loadFlags())
}

func (s *Store) loadFlags() error {
	_, restored, err := s.raw(sysRestored)
	if err != nil {
		return err
	}
	s.restored.Store(restored)
	value, known, err := s.raw(sysDigestKey)
	if err != nil || !known {
		return err
	}
	var key crdt.DigestKey
	if copy(key[:], value) != len(value) || len(value) != len(key) {
		return fmt.Errorf("digest key of %d bytes: %w", len(value), ErrCorrupt)
	}
	s.digest.set(key, crdt.Digest{})
	return nil
}

// saveCeiling is called by the clock inside of a write, so the writer is held. In an Update the ceiling gets to the disk with the
// stamps that need it, by one flush.
func (s *Store) saveCeiling(ceiling crdt.HLC) error {
	if s.tx != nil {
		s.tx.ceiling = ceiling
		return s.tx.set([]byte(sysCeiling), number(uint64(ceiling)))
	}
	if err := s.setRaw(sysCeiling, number(uint64(ceiling))); err != nil {
		return err
	}
	s.saved = ceiling
	return nil
}

// random draws a 64-bit ID. The lowest and the highest two stand for other things, see crdt.Burned and crdt.Spent.
func (s *Store) random() (uint64, error) {
	for {
		var buf [8]byte
		if _, err := io.ReadFull(s.entropy, buf[:]); err != nil {
			return 0, fmt.Errorf("draw an ID: %w", err)
		}
		if id := binary.BigEndian.Uint64(buf[:]); id != 0 && id < uint64(crdt.Owed) {
			return id, nil
		}
	}
}

// number reads one of the store's own values.
func (s *Store) number(name string) (n uint64, known bool, err error) {
	value, known, err := s.raw(name)
	if err != nil || !known {
		return 0, false, err
	}
	if len(value) != 8 {
		return 0, false, fmt.Errorf("%s has %d bytes: %w", name, len(value), ErrCorrupt)
	}
	return binary.BigEndian.Uint64(value), true, nil
}

func (s *Store) raw(key string) (value []byte, known bool, err error) {
	err = s.db.View(func(txn *badger.Txn) error {
		value, known, err = get(txn, []byte(key))
		return err
	})
	return value, known, err
}

// setRaw writes one value and syncs. The caller holds writer, or nobody else has the store yet.
func (s *Store) setRaw(key string, value []byte) error {
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	s.large = s.large || len(value) >= largeValue
	if err := txn.Set([]byte(key), value); err != nil {
		return badgerError(err)
	}
	return s.commit(txn)
}

func get(txn *badger.Txn, key []byte) (value []byte, known bool, err error) {
	known, err = look(txn, key, func(data []byte) error { value = slices.Clone(data); return nil })
	return value, known, err
}

// look calls fn with a value, which is not to be used after it.
func look(txn *badger.Txn, key []byte, fn func(value []byte) error) (known bool, err error) {
	item, err := txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read: %w", err)
	}
	var failed error
	if err := item.Value(func(value []byte) error { failed = fn(value); return nil }); err != nil {
		return true, fmt.Errorf("read: %w", err)
	}
	return true, failed
}

// eachValue calls each with the rest of the key and a copy of the value of everything under a prefix, in key order.
func eachValue(txn *badger.Txn, prefix string, each func(name string, value []byte) error) error {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte(prefix), PrefetchValues: true, PrefetchSize: 100})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		value, err := it.Item().ValueCopy(nil)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if err := each(string(it.Item().Key()[len(prefix):]), value); err != nil {
			return err
		}
	}
	return nil
}

func beUint64(b []byte) uint64 { return binary.BigEndian.Uint64(b) }

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
