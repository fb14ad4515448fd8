package store

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/dgraph-io/badger/v4"
)

// Disk is a disk in memory, for simulators: a store opened on it runs the same code as one in a directory, without
// files. Only one store at a time has it open. Its content outlives the store, as a directory's does.
type Disk struct {
	mu    sync.Mutex
	db    *badger.DB        // of the store that has the disk open
	image map[string][]byte // the content while no store has it open
}

// NewDisk returns an empty disk.
func NewDisk() *Disk { return &Disk{} }

// Copy returns a disk with the content as of now: what a killed process would leave, a clone, or a copy to roll back to.
func (d *Disk) Copy() (*Disk, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.db == nil {
		return &Disk{image: maps.Clone(d.image)}, nil
	}
	image, err := imageOf(d.db)
	if err != nil {
		return nil, fmt.Errorf("copy disk: %w", err)
	}
	return &Disk{image: image}, nil
}

var errDiskOpen = errors.New("a store has this disk open")

// open gives badger the content of the disk.
func (d *Disk) open(o badger.Options) (*badger.DB, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.db != nil {
		return nil, &LockedError{Dir: "in memory", Err: errDiskOpen}
	}
	db, err := badger.Open(o.WithDir("").WithValueDir("").WithInMemory(true).WithMemTableSize(memoryTable))
	if err != nil {
		return nil, err
	}
	batch := db.NewWriteBatch()
	defer batch.Cancel()
	for key, value := range d.image {
		if err := batch.Set([]byte(key), value); err != nil {
			return nil, err
		}
	}
	if err := batch.Flush(); err != nil {
		return nil, err
	}
	d.db, d.image = db, nil
	return db, nil
}

// memoryTable is half of what a disk gets: a store in memory is opened often and holds little.
const memoryTable = 8 << 20

// release keeps the content of the database that is about to be closed.
func (d *Disk) release() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	image, err := imageOf(d.db)
	d.db, d.image = nil, image
	return err
}

// empty drops the content of the database that is about to be closed.
func (d *Disk) empty() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.db, d.image = nil, nil
}

func imageOf(db *badger.DB) (map[string][]byte, error) {
	image := map[string][]byte{}
	err := db.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{PrefetchValues: true, PrefetchSize: 100})
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			value, err := it.Item().ValueCopy(nil)
			if err != nil {
				return err
			}
			image[string(it.Item().Key())] = value
		}
		return nil
	})
	return image, err
}
