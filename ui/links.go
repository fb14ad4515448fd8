package ui

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	linkLife = 15 * time.Minute
	// linkMemory is how long a dead link is kept to tell used from unknown.
	linkMemory = 2 * linkLife
	// linkCodeBytes: 160 bits, so that tries need no counting.
	linkCodeBytes = 20
	// maxLinks bounds the memory; the oldest goes first. Only who holds the
	// admin socket makes links.
	maxLinks = 256
)

var linkCode = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// links keeps the codes of UI links, hashed. See the package comment for the
// states.
type links struct {
	now     func() time.Time
	entropy io.Reader

	mu   sync.Mutex
	made map[[sha256.Size]byte]link
}

type link struct {
	issued time.Time
	used   bool
}

func newLinks(now func() time.Time, entropy io.Reader) *links {
	return &links{now: now, entropy: entropy, made: make(map[[sha256.Size]byte]link)}
}

// issue makes a code and forgets what is too old to tell of.
func (l *links) issue() (code string, expires time.Time, err error) {
	raw := make([]byte, linkCodeBytes)
	if _, err := io.ReadFull(l.entropy, raw); err != nil {
		return "", time.Time{}, fmt.Errorf("make link: %w", err)
	}
	code = linkCode.EncodeToString(raw)
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(now)
	l.made[sha256.Sum256([]byte(code))] = link{issued: now}
	return code, now.Add(linkLife), nil
}

// redeem uses a code up. Looking up a hash tells a guesser nothing by its
// timing about the codes that exist.
func (l *links) redeem(code string) error {
	id := sha256.Sum256([]byte(strings.TrimSpace(code)))
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	made, ok := l.made[id]
	switch {
	case !ok:
		return linkError("link_unknown", "this link is not known to this node: it is mistyped, too old, or the daemon was restarted since")
	case made.used:
		return linkError("link_used", "this link was used already: a link opens the page once")
	case now.Sub(made.issued) > linkLife:
		return linkError("link_expired", "this link has expired: a link is good for 15 minutes")
	}
	made.used = true
	l.made[id] = made
	return nil
}

func (l *links) forget(now time.Time) {
	oldest, at := [sha256.Size]byte{}, now
	for id, made := range l.made {
		if now.Sub(made.issued) > linkMemory {
			delete(l.made, id)
		} else if !made.issued.After(at) {
			oldest, at = id, made.issued
		}
	}
	if len(l.made) >= maxLinks {
		delete(l.made, oldest)
	}
}

func linkError(code, message string) error {
	return &Error{Kind: Unauthorized, Code: code, Message: message, Hint: "type `llmgw ui` on the box for a new link"}
}
