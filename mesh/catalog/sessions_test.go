package catalog

import (
	"math"
	"testing"
	"time"

	"llmgw/crdt"
)

func TestExpiredSessionsAreDropped(t *testing.T) {
	b := newBox(t)
	now := time.Unix(20, 999)
	for id, expires := range map[string]int64{"never": 0, "long ago": math.MinInt64, "old": 10, "just": 20, "new": 21, "ever": math.MaxInt64} {
		must(t, b.PutSession(Session{ID: id, Expires: expires}))
	}
	must(t, b.DropExpiredSessions(now))
	for id, kept := range map[string]bool{"never": false, "long ago": false, "old": false, "just": false, "new": true, "ever": true} {
		s, err := b.Session(id)
		if kept && (err != nil || s.ID != id) || !kept && err == nil {
			t.Errorf("%s: %+v, %v", id, s, err)
		}
		if !kept {
			notFound(t, id, err)
		}
	}
	before := b.store.Sequence()
	must(t, b.DropExpiredSessions(now))
	if b.store.Sequence() != before {
		t.Error("nothing was left to drop and something was written")
	}
}

func TestASessionThatEndedStaysEnded(t *testing.T) {
	a, b := quickBox(t), quickBox(t)
	s := Session{ID: "s", Created: 1, Expires: 30, Creator: "p"}
	must(t, a.PutSession(s))
	exchange(t, a, b)
	must(t, a.DeleteSession("s"))
	s.Expires = 99
	for range 5 { // prolonged on another box meanwhile
		s.Expires++
		must(t, b.PutSession(s))
	}
	exchange(t, a, b)
	for name, side := range map[string]box{"a": a, "b": b} {
		_, err := side.Session("s")
		notFound(t, "read on "+name, err)
		notFound(t, "prolonged on "+name, side.PutSession(s))
		notFound(t, "ended again on "+name, side.DeleteSession("s"))
	}
	_, err := a.Session("another")
	notFound(t, "one that never was", err)
}

// A session that cannot be read is kept, and keeps none of the others from ending.
func TestAnUnreadableSessionKeepsNoOther(t *testing.T) {
	b := quickBox(t)
	must(t, b.PutSession(Session{ID: "a", Expires: 1}))
	must(t, b.PutSession(Session{ID: "z", Expires: 1}))
	key := crdt.NewKey(NamespaceSessions, "future")
	b.put(t, key, map[string][]byte{cellRecord: {0xff}})
	must(t, b.DropExpiredSessions(time.Unix(5, 0)))
	for _, id := range []string{"a", "z"} {
		_, err := b.Session(id)
		notFound(t, id, err)
	}
	if !b.row(t, key).Present() {
		t.Error("what another version wrote was dropped")
	}
	if _, err := b.Session("future"); err == nil {
		t.Error("it was read")
	}
}
