package store

import (
	"fmt"
	"time"
)

const (
	// TombstoneAge is how long this store keeps a tombstone that not every member has acknowledged, in time that it
	// spent with peers.
	TombstoneAge = 14 * 24 * time.Hour

	// overdueAfter is when a store that was away may have missed tombstones. The day between covers what the members'
	// counters differ by.
	overdueAfter = TombstoneAge - 24*time.Hour

	// syncedStep is by how much the time of the last sync moves before it is written to disk.
	syncedStep = time.Minute
)

// AddUptime counts time that this node was up and had a live peer. It is measured by a clock that does not step; nothing
// here is decided by wall clocks, so that neither a step of them nor a mesh that was switched off as a whole ages anything.
func (s *Store) AddUptime(d time.Duration) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	if d < 0 {
		return fmt.Errorf("add uptime: negative duration %s", d)
	}
	return s.setTimes(times{own: s.times.own + d, mesh: s.times.mesh + d, synced: s.times.synced})
}

// MeshUptime is the mesh's time as far as this store knows: how long it was up with peers, or the most that a peer
// told, whichever is more. Peers tell it to each other when they connect.
func (s *Store) MeshUptime() time.Duration {
	s.writer.Lock()
	defer s.writer.Unlock()
	return s.times.mesh
}

// NoteSync says that everything was pulled from a peer which told this MeshUptime before the pull began, and which is not
// overdue itself.
func (s *Store) NoteSync(peerUptime time.Duration) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	next := s.times
	next.mesh, next.synced = max(next.mesh, peerUptime), max(next.synced, peerUptime)
	if next.synced-s.times.synced < syncedStep && s.times.synced != 0 {
		return nil
	}
	return s.setTimes(next)
}

// Overdue says whether this store has to re-seed before it exchanges rows with others: it was away for so long, in the
// mesh's time as told by a peer that is not overdue, that tombstones may be gone which it never saw; or its disk was
// restored or rolled back. With no peer to ask, pass 0.
//
// When every peer that can be reached is overdue too, call MergeNormally and go on without.
func (s *Store) Overdue(peerUptime time.Duration) bool {
	s.writer.Lock()
	defer s.writer.Unlock()
	if s.restored.Load() {
		return true
	}
	// Who holds nothing brings nothing back. Who holds rows and has never pulled everything knows of no deletion at all.
	return s.seq.Load() > 0 && peerUptime-s.times.synced >= overdueAfter
}

// MergeNormally ends that this store is overdue, without a re-seed: there is nobody to re-seed from. Deleted rows may come
// back; none is lost. It takes the MeshUptime of the peer that it goes on with.
func (s *Store) MergeNormally(peerUptime time.Duration) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	b := s.begin()
	defer b.discard()
	next := s.times
	next.mesh, next.synced = max(next.mesh, peerUptime), max(next.synced, peerUptime)
	if err := b.set([]byte(sysTimes), next.encode()); err != nil {
		return err
	}
	if err := b.remove([]byte(sysRestored)); err != nil {
		return err
	}
	if err := b.commit(); err != nil {
		return err
	}
	s.times = next
	s.restored.Store(false)
	return nil
}

// times are the counters of observed uptime; guarded by writer.
type times struct {
	own    time.Duration // what AddUptime added up: the age of tombstones is told by it
	mesh   time.Duration
	synced time.Duration // mesh time of the last complete pull; 0 before the first
}

func (t times) encode() []byte {
	return append(append(number(uint64(t.own)), number(uint64(t.mesh))...), number(uint64(t.synced))...)
}

func (s *Store) setTimes(t times) error {
	if err := s.setRaw(sysTimes, t.encode()); err != nil {
		return fmt.Errorf("keep uptime: %w", err)
	}
	s.times = t
	return nil
}

func (s *Store) loadTimes() error {
	value, known, err := s.raw(sysTimes)
	if err != nil || !known {
		return err
	}
	if len(value) != 24 {
		return fmt.Errorf("uptime of %d bytes: %w", len(value), ErrCorrupt)
	}
	at := func(i int) time.Duration { return time.Duration(beUint64(value[i*8:])) }
	s.times = times{own: at(0), mesh: at(1), synced: at(2)}
	return nil
}
