package store_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"testing"

	"llmgw/crdt/store"
)

const backupMagic = "llmgw state backup 1\n"

// FuzzRestore takes what lies between the magic and the sum of a backup from outside. It is restored or refused; a store that
// it makes opens, verifies and takes writes.
func FuzzRestore(f *testing.F) {
	disk := store.NewDisk()
	s, err := store.Open("", store.Options{Disk: disk})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := s.Update(func(tx *store.Tx) error { return tx.Set(row("m"), "a", []byte("v")) }); err != nil {
		f.Fatal(err)
	}
	var archive bytes.Buffer
	if err := errors.Join(s.Backup(&archive), s.Close()); err != nil {
		f.Fatal(err)
	}
	f.Add(archive.Bytes()[len(backupMagic) : archive.Len()-sha256.Size])
	f.Fuzz(func(t *testing.T, body []byte) {
		data := append([]byte(backupMagic), body...)
		sum := sha256.Sum256(data)
		disk := store.NewDisk()
		if err := store.Restore("", bytes.NewReader(append(data, sum[:]...)), store.Options{Disk: disk}); err != nil {
			return
		}
		s, err := store.Open("", store.Options{Disk: disk})
		if err != nil {
			t.Fatalf("restored and then not opened: %v", err)
		}
		defer s.Close()
		if _, err := s.Verify(); err != nil {
			t.Errorf("verify: %v", err)
		}
	})
}

// FuzzFiles takes the files that are read before badger reads them.
func FuzzFiles(f *testing.F) {
	f.Add([]byte("Bdgr\x00\x00\x00\x08"))
	f.Add([]byte("\x00\x00\x00\x01x\x10\x05\x00\x00\x00\x02"))
	f.Fuzz(func(t *testing.T, data []byte) { store.CheckFiles(data) })
}
