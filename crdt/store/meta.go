package store

import (
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// Meta returns a local value: it is not a row, is never shared, and outlives Reset.
func (s *Store) Meta(name string) (value []byte, known bool, err error) {
	err = s.view(func(txn *badger.Txn) error {
		value, known, err = get(txn, []byte(metaPrefix+name))
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("read meta %s: %w", name, err)
	}
	return value, known, nil
}

// SetMeta keeps a local value; it is on disk when SetMeta returns nil.
func (s *Store) SetMeta(name string, value []byte) error {
	if name == "" || len(name) > crdt.MaxKeyBytes {
		return fmt.Errorf("set meta: name of %d bytes: %w", len(name), crdt.ErrMalformed)
	}
	if len(value) > pageBytes {
		return fmt.Errorf("set meta %s: %d bytes: %w", name, len(value), crdt.ErrTooLarge)
	}
	if err := s.set(metaPrefix+name, append([]byte{}, value...)); err != nil {
		return fmt.Errorf("set meta %s: %w", name, err)
	}
	return nil
}

// set writes one value that is not a row.
func (s *Store) set(key string, value []byte) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	return s.setRaw(key, value)
}
