// Package ui owns the admin API (/admin/v1): its types, its errors, the client
// that the CLI uses, and the embedded web page that polls it. What the answers
// say comes from a Backend, which package node implements; nothing here knows
// the mesh, a store or a process.
//
// There are two doors. AdminHandler is for the unix socket, whose listener has
// checked the peer's credentials: everything is allowed there. PublicHandler is
// for the public port: the page and its assets are open and hold no data, the
// reading routes want a session cookie, the writing ones are closed. A route
// that declares nothing is closed to both doors; see routes.go.
//
// A session begins with a link:
//
//	state    event                        next
//	-        NewLink                      open
//	open     its code is posted           used, and a session begins
//	open     15 minutes pass              expired
//	used, expired: kept as long again to say so, then forgotten
//
// Links live in this process, hashed, and die with it. Sessions live in
// Sessions, hashed, so that any node of the mesh knows them. A session ends by
// DELETE, after 12 hours without use, or 7 days after it began.
//
// All methods may be called by many goroutines at once. No method blocks on
// anything but the Backend and Sessions.
package ui

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Config is what a UI is made of. Backend, Sessions and PublicURL are needed;
// the others have defaults.
type Config struct {
	Backend  Backend
	Sessions Sessions
	// Node is this node's name, told in errors and written to sessions.
	Node string
	// Hosts lists further Host names, without port, under which the page may be
	// opened. IP addresses and localhost always may: no stranger's name can be
	// pointed at them.
	Hosts func() []string
	// AllowHost says how an operator adds a Host name, for refusals, such as
	// "start the daemon with --ui-host NAME".
	AllowHost string
	// PublicURL is where a browser reaches the public port, without a slash at
	// the end, such as "http://192.0.2.7:8770".
	PublicURL func() string
	Log       *slog.Logger     // default: none
	Now       func() time.Time // default: time.Now
	Entropy   io.Reader        // default: crypto/rand
}

// UI serves the admin API and the page.
type UI struct {
	cfg      Config
	links    *links
	sessions *sessions
	entropy  *lockedReader
}

// New makes a UI. It starts nothing.
func New(cfg Config) *UI {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Entropy == nil {
		cfg.Entropy = rand.Reader
	}
	if cfg.Hosts == nil {
		cfg.Hosts = func() []string { return nil }
	}
	if cfg.AllowHost == "" {
		cfg.AllowHost = "open the page by the box's IP address"
	}
	entropy := &lockedReader{r: cfg.Entropy}
	return &UI{
		cfg:      cfg,
		entropy:  entropy,
		links:    newLinks(cfg.Now, entropy),
		sessions: newSessions(cfg.Sessions, cfg.Node, cfg.Now, entropy),
	}
}

// NewLink makes a link that opens the page once within 15 minutes. Its code is
// in the fragment, which browsers send to no server.
func (u *UI) NewLink(_ context.Context) (url string, expires time.Time, err error) {
	code, expires, err := u.links.issue()
	if err != nil {
		return "", time.Time{}, err
	}
	return u.cfg.PublicURL() + "/#code=" + code, expires, nil
}

// AdminHandler serves all of /admin/v1 for a listener that checked its peers,
// such as the unix socket.
func (u *UI) AdminHandler() http.Handler { return u.socketDoor() }

// PublicHandler serves the page and the reading part of /admin/v1 for the
// public port.
func (u *UI) PublicHandler() http.Handler { return u.publicDoor() }

// lockedReader lets many goroutines draw from one entropy source.
type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedReader) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return io.ReadFull(l.r, p)
}
