package ui

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	sessionIdle     = 12 * time.Hour
	sessionAbsolute = 7 * 24 * time.Hour
	// sessionStep is how coarsely use is noted: each note is a write that the
	// whole mesh gets.
	sessionStep  = 30 * time.Minute
	sessionBytes = 32 // 256 bits

	// The prefix makes browsers insist on TLS, this host alone and path /.
	cookieTLS   = "__Host-llmgw"
	cookiePlain = "llmgw-session"
)

// sessions begins, checks and ends sessions.
type sessions struct {
	store   Sessions
	creator string
	now     func() time.Time
	entropy io.Reader
	// mu orders "still there?" and the write that notes use, so that a logout
	// between the two is not undone.
	mu sync.Mutex
}

func newSessions(store Sessions, creator string, now func() time.Time, entropy io.Reader) *sessions {
	return &sessions{store: store, creator: creator, now: now, entropy: entropy}
}

// begin makes a session and sets its cookie.
func (s *sessions) begin(w http.ResponseWriter, r *http.Request) (expires time.Time, err error) {
	raw := make([]byte, sessionBytes)
	if _, err := io.ReadFull(s.entropy, raw); err != nil {
		return time.Time{}, fmt.Errorf("begin session: %w", err)
	}
	value := base64.RawURLEncoding.EncodeToString(raw)
	now := s.now()
	err = s.store.PutSession(Session{
		ID: sessionID(value), Created: now.Unix(), Expires: now.Add(sessionIdle).Unix(), Creator: s.creator,
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("begin session: %w", err)
	}
	// The cookie outlives idle times: the server decides, and the page then
	// says "expired" instead of looking like a first visit.
	http.SetCookie(w, cookie(r, value, int(sessionAbsolute/time.Second)))
	return now.Add(sessionAbsolute), nil
}

// check finds the session of a request. It says false for a stranger and for a
// session that ended.
func (s *sessions) check(r *http.Request) (bool, error) {
	id, ok := requestSession(r)
	if !ok {
		return false, nil
	}
	found, ok, err := s.store.Session(id)
	if err != nil || !ok {
		return false, err
	}
	now := s.now()
	if now.Unix() >= end(found) {
		return false, s.store.DeleteSession(id)
	}
	return true, s.note(id, now)
}

// note moves the idle end, at most once in sessionStep.
func (s *sessions) note(id string, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok, err := s.store.Session(id)
	if err != nil || !ok {
		return err
	}
	moved := found
	moved.Expires = min(now.Add(sessionIdle).Unix(), absolute(found))
	if moved.Expires-found.Expires < int64(sessionStep/time.Second) {
		return nil
	}
	return s.store.PutSession(moved)
}

// finish ends the session of a request and clears its cookie.
func (s *sessions) finish(w http.ResponseWriter, r *http.Request) error {
	id, ok := requestSession(r)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.store.DeleteSession(id); err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	http.SetCookie(w, cookie(r, "", -1))
	return nil
}

// end does not trust Expires alone: another node may have another idea of the
// longest life.
func end(s Session) int64 { return min(s.Expires, absolute(s)) }

func absolute(s Session) int64 { return s.Created + int64(sessionAbsolute/time.Second) }

// sessionID is what is stored of a cookie's value. The value is random and
// long, so a fast hash is enough.
func sessionID(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:])
}

func requestSession(r *http.Request) (id string, ok bool) {
	c, err := r.Cookie(cookieName(r))
	if err != nil || c.Value == "" {
		return "", false
	}
	return sessionID(c.Value), true
}

func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return cookieTLS
	}
	return cookiePlain
}

func cookie(r *http.Request, value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName(r), Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	}
}
