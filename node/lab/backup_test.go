package lab

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"llmgw/ui"
)

// TestRestoredBackupCatchesUp: an old backup is a box that was away. What was
// made since comes, what was revoked since stays revoked, and what it writes
// then reaches the others.
func TestRestoredBackupCatchesUp(t *testing.T) {
	t.Parallel()
	s := joinedScene(t)
	before := s.b.CLI("keys", "new", "before")
	doomed := s.a.CLI("keys", "new", "doomed")
	answers(t, s.atB(doomed), http.StatusOK)
	backup := filepath.Join(s.Dir(), "b.state")
	s.b.CLI("state", "backup", backup)
	s.a.CLI("keys", "revoke", "doomed")
	since := s.b.CLI("keys", "new", "since") // what the backup does not know that it wrote
	answers(t, s.atB(doomed), http.StatusUnauthorized)
	answers(t, s.atA(since), http.StatusOK)
	if r := s.b.Try("state", "restore", backup); r.Code == 0 || !strings.Contains(r.Stderr, "pid") {
		t.Errorf("a running daemon's state was replaced, or nothing says who runs:\n%s", r)
	}
	s.b.Stop()
	t.Log(s.b.Try("state", "restore", backup).Stderr)
	s.b.Start()
	s.a.Sees(s.b, 20*time.Second, ui.NodeLive)
	for _, k := range []string{before, since} {
		answersWithin(t, s.atB(k), http.StatusOK, 30*time.Second)
		answers(t, s.atA(k), http.StatusOK)
	}
	answersWithin(t, s.atB(doomed), http.StatusUnauthorized, 30*time.Second)
	after := s.b.CLI("keys", "new", "after")
	answersWithin(t, s.atA(after), http.StatusOK, 30*time.Second)
	s.b.CLI("keys", "revoke", "since")
	answersWithin(t, s.atA(since), http.StatusUnauthorized, 30*time.Second)
	for _, b := range []*Box{s.a, s.b} {
		if r := b.Try("state", "verify"); r.Code != 0 {
			t.Error(r)
		}
	}
}
