package lab

import (
	"net/http"
	"testing"
	"time"
)

// keyWithin is how long a key's life or end may take to reach another box.
const keyWithin = time.Second

// answers polls until a box answers a key with this status; it returns how
// long that took.
func answers(t *testing.T, at *API, status int) time.Duration {
	t.Helper()
	began := time.Now()
	Eventually(t, 10*time.Second, "the answer is "+http.StatusText(status), func() (bool, string) {
		got, err := at.Ask(seconds(t, 5), http.MethodGet, "/v1/models", nil)
		if err != nil {
			return false, err.Error()
		}
		return got.Status == status, got.String()
	})
	return time.Since(began)
}

func TestKeysHoldOnEveryBox(t *testing.T) {
	s := joinedScene(t)
	key := s.a.CLI("keys", "new", "phone")
	if took := answers(t, s.atB(key), 200); took > keyWithin {
		t.Errorf("a key made on a worked on b after %v", took)
	}
	s.b.CLI("keys", "revoke", "phone")
	if took := answers(t, s.atA(key), 401); took > keyWithin {
		t.Errorf("a key revoked on b was refused on a after %v", took)
	}
	answers(t, s.atB(key), 401)
	again := s.b.CLI("keys", "new", "phone")
	if again == key {
		t.Fatal("the same key was made twice")
	}
	if took := answers(t, s.atA(again), 200); took > keyWithin {
		t.Errorf("a key made on b worked on a after %v", took)
	}
	answers(t, s.atA(key), 401)
}

// TestRevokedKeyStaysRevokedAfterACut: a box that was away learns of it, and
// what it wrote meanwhile survives too.
func TestRevokedKeyStaysRevokedAfterACut(t *testing.T) {
	t.Parallel()
	s := joinedScene(t)
	old := s.a.CLI("keys", "new", "old")
	answers(t, s.atB(old), 200)
	s.b.Cut()
	s.a.CLI("keys", "revoke", "old")
	fresh := s.b.CLI("keys", "new", "fresh")
	s.b.Heal()
	answersWithin(t, s.atB(old), 401, 30*time.Second)
	answersWithin(t, s.atA(fresh), 200, 30*time.Second)
}

func answersWithin(t *testing.T, at *API, status int, within time.Duration) {
	t.Helper()
	Eventually(t, within, "the answer is "+http.StatusText(status), func() (bool, string) {
		got, err := at.Ask(seconds(t, 5), http.MethodGet, "/v1/models", nil)
		if err != nil {
			return false, err.Error()
		}
		return got.Status == status, got.String()
	})
}
