package mesh

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// otherVersions are peers with which this box has no version of the wire forms in common: no stream between the two comes
// further than the hello, so to each other they look dead. The zero value is ready.
type otherVersions struct {
	mu  sync.Mutex
	all map[peer.ID]otherVersion
}

type otherVersion struct {
	speaks versions
	at     time.Time // of its last hello
}

// maxOtherVersions bounds what guests can make this box remember.
const maxOtherVersions = 256

// met takes in what a hello came to.
func (s *otherVersions) met(p peer.ID, h hello, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		delete(s.all, p)
	case errors.Is(err, ErrVersion):
		if s.all == nil || len(s.all) >= maxOtherVersions {
			s.all = map[peer.ID]otherVersion{}
		}
		s.all[p] = otherVersion{h.speaks(), now}
	}
}

func (s *otherVersions) of(p peer.ID, now time.Time) (versions, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.all[p]
	return known.speaks, ok && now.Sub(known.at) <= alarmFor
}

// mismatch says that this box and p have no version in common, by what p said in the last 10 minutes; else it is empty.
func (m *Mesh) mismatch(p peer.ID) (text, fix string) {
	theirs, ok := m.others.of(p, m.now())
	if !ok {
		return "", ""
	}
	name, own := m.nameOf(p.String()), m.cfg.speaks
	fix = "install the newer llmgw on this box, then type: llmgw restart"
	if theirs.max < own.min {
		fix = fmt.Sprintf("install the newer llmgw on %s, then type there: llmgw restart", name)
	}
	return fmt.Sprintf("%s speaks %s of the mesh's protocol and this box %s: they cannot talk to each other", name, theirs, own), fix
}

func (m *Mesh) versionAlarms() []Alarm {
	var out []Alarm
	for _, l := range m.links.all() {
		if text, fix := m.mismatch(l.peer); text != "" {
			out = append(out, Alarm{Kind: AlarmVersion, Text: text, Fix: fix})
		}
	}
	return out
}
