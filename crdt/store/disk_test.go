package store_test

import (
	"errors"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

func onDisk(t *testing.T, d *store.Disk) *store.Store {
	t.Helper()
	return openWith(t, "", store.Options{Now: func() time.Time { return start }, Disk: d})
}

func TestDiskInMemoryKeepsItsContent(t *testing.T) {
	disk, key := store.NewDisk(), crdt.NewKey("models", "m")
	s := onDisk(t, disk)
	set(t, s, key, "a", "1")
	id, index := s.ID(), s.IndexID()
	if _, err := store.Open("", store.Options{Disk: disk}); !errors.As(err, new(*store.LockedError)) {
		t.Errorf("opened twice: %v", err)
	}
	killed, err := disk.Copy()
	must(t, err)
	set(t, s, key, "a", "2")
	closeStore(t, s)
	again := onDisk(t, disk)
	if got := value(t, again, key, "a"); got != "2" || again.ID() != id || again.IndexID() != index {
		t.Errorf("after reopening: %q, store %d was %d", got, again.ID(), id)
	}
	old := onDisk(t, killed)
	if got := value(t, old, key, "a"); got != "1" || old.Sequence() != 1 || old.ID() != id {
		t.Errorf("the copy holds %q at sequence %d", got, old.Sequence())
	}
	set(t, old, key, "a", "3")
	if got := value(t, again, key, "a"); got != "2" {
		t.Errorf("the copy shares its content: %q", got)
	}
}

func BenchmarkOpenInMemory(b *testing.B) {
	for b.Loop() {
		s, err := store.Open("", store.Options{Disk: store.NewDisk()})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUpdateInMemory(b *testing.B) {
	s, err := store.Open("", store.Options{Disk: store.NewDisk()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := 0; b.Loop(); i++ {
		if _, err := s.Update(func(tx *store.Tx) error {
			return tx.Set(crdt.NewKey("models", "m"), "a", []byte{byte(i), byte(i >> 8), byte(i >> 16)})
		}); err != nil {
			b.Fatal(err)
		}
	}
}
