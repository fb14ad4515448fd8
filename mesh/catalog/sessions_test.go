package catalog

import (
	"errors"
	"testing"
	"time"
)

func TestExpiredSessionsAreDropped(t *testing.T) {
	b := newBox(t)
	must(t, b.PutSession(Session{ID: "old", Expires: 10}))
	must(t, b.PutSession(Session{ID: "new", Expires: 30}))
	must(t, b.DropExpiredSessions(time.Unix(20, 0)))
	if _, err := b.Session("old"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an expired session reads as %v", err)
	}
	s, err := b.Session("new")
	must(t, err)
	if s.ID != "new" || s.Expires != 30 {
		t.Errorf("got %+v", s)
	}
	must(t, b.DeleteSession("new"))
	if err := b.PutSession(s); !errors.Is(err, ErrNotFound) {
		t.Errorf("an ended session could be prolonged: %v", err)
	}
}
