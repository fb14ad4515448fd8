package ui

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"llmgw/mesh/catalog"
)

// A Session and a catalog.Session convert into each other.
var _ = func(s catalog.Session) Session { return Session(s) }

func (f *fixture) status(c *http.Cookie) int {
	r := browser("GET", "/admin/v1/status", "")
	r.AddCookie(c)
	return f.ask(r).Code
}

func TestLinkOpensOnce(t *testing.T) {
	f := newFixture(t)
	link, expires, err := f.NewLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(link, "http://192.0.2.7:8770/#code=") || !expires.Equal(noon.Add(15*time.Minute)) {
		t.Errorf("link %q until %v", link, expires)
	}
	code := linkFragment(link)
	if w := f.ask(sessionRequest(code)); w.Code != http.StatusOK {
		t.Fatalf("first use: status %d: %s", w.Code, w.Body)
	}
	w := f.ask(sessionRequest(code))
	b := refusalOf(t, w)
	if w.Code != http.StatusUnauthorized || b.Error.Code != "link_used" || !strings.Contains(b.LLMGW.Hint, "llmgw ui") {
		t.Errorf("second use: status %d, %+v", w.Code, b)
	}
	if len(w.Result().Cookies()) != 0 {
		t.Error("second use set a cookie")
	}
}

func TestLinkRefusals(t *testing.T) {
	for _, c := range []struct {
		name, code, want string
		after            time.Duration
		change           func(string) string
	}{
		{"just in time", "", "", 15 * time.Minute, nil},
		{"too late", "", "link_expired", 15*time.Minute + time.Second, nil},
		{"mistyped", "", "link_unknown", 0, func(s string) string { return s[1:] + "a" }},
		{"empty", "", "link_unknown", 0, func(string) string { return "" }},
		{"huge", "", "link_unknown", 0, func(string) string { return strings.Repeat("a", 60000) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			code := f.code(t)
			if c.change != nil {
				code = c.change(code)
			}
			f.now = f.now.Add(c.after)
			w := f.ask(sessionRequest(code))
			if c.want == "" {
				if w.Code != http.StatusOK {
					t.Fatalf("status %d: %s", w.Code, w.Body)
				}
				return
			}
			if b := refusalOf(t, w); w.Code != http.StatusUnauthorized || b.Error.Code != c.want {
				t.Errorf("status %d, code %q, want 401 %q", w.Code, b.Error.Code, c.want)
			}
		})
	}
}

func TestLinksAreForgottenAndBounded(t *testing.T) {
	f := newFixture(t)
	first := f.code(t)
	for range maxLinks {
		f.now = f.now.Add(time.Millisecond)
		f.code(t)
	}
	if len(f.links.made) > maxLinks {
		t.Errorf("%d links kept, bound is %d", len(f.links.made), maxLinks)
	}
	if b := refusalOf(t, f.ask(sessionRequest(first))); b.Error.Code != "link_unknown" {
		t.Errorf("the oldest link stayed: %q", b.Error.Code)
	}
	f.now = f.now.Add(linkMemory + time.Second)
	f.code(t)
	if len(f.links.made) != 1 {
		t.Errorf("%d links kept after their time", len(f.links.made))
	}
}

func TestSecretsAreStoredHashed(t *testing.T) {
	f := newFixture(t)
	code := f.code(t)
	for id := range f.links.made {
		if strings.Contains(string(id[:]), code) {
			t.Error("the code is kept as it is")
		}
	}
	c := f.login(t)
	if len(c.Value) < 43 { // 256 bits in base64
		t.Errorf("cookie value of %d characters", len(c.Value))
	}
	for id, s := range f.sessions.rows {
		if id != s.ID || len(id) != 64 || strings.Contains(id, c.Value) {
			t.Errorf("session row %q is not the hash of the cookie", id)
		}
		if s.Created != noon.Unix() || s.Creator != "attic" {
			t.Errorf("session row %+v", s)
		}
	}
}

func TestCookieOnPlainHTTPAndTLS(t *testing.T) {
	for _, c := range []struct {
		name, want string
		tls        *tls.ConnectionState
	}{{"plain", "llmgw-session", nil}, {"tls", "__Host-llmgw", &tls.ConnectionState{}}} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			r := sessionRequest(f.code(t))
			r.TLS = c.tls
			if c.tls != nil {
				r.Header.Set("Origin", "https://192.0.2.7:8770")
			}
			got := f.ask(r).Result().Cookies()[0]
			if got.Name != c.want || got.Secure != (c.tls != nil) || !got.HttpOnly ||
				got.SameSite != http.SameSiteStrictMode || got.Path != "/" || got.Domain != "" {
				t.Errorf("cookie %+v", got)
			}
			ask := browser("GET", "/admin/v1/status", "")
			ask.TLS = c.tls
			ask.AddCookie(got)
			if w := f.ask(ask); w.Code != http.StatusOK {
				t.Errorf("the cookie does not open the session: %d", w.Code)
			}
		})
	}
}

func TestSessionEndsWhenIdle(t *testing.T) {
	f := newFixture(t)
	c := f.login(t)
	f.now = noon.Add(12*time.Hour - time.Second)
	if got := f.status(c); got != http.StatusOK {
		t.Fatalf("just before the end: %d", got)
	}
	f.now = f.now.Add(12*time.Hour - time.Second)
	if got := f.status(c); got != http.StatusOK {
		t.Fatalf("use did not move the end: %d", got)
	}
	f.now = f.now.Add(12 * time.Hour)
	if got := f.status(c); got != http.StatusUnauthorized {
		t.Errorf("after 12 idle hours: %d", got)
	}
	if len(f.sessions.rows) != 0 {
		t.Error("the ended session stayed in the store")
	}
}

func TestSessionEndsAfterSevenDaysOfUse(t *testing.T) {
	f := newFixture(t)
	c := f.login(t)
	for f.now.Before(noon.Add(7*24*time.Hour - time.Hour)) {
		f.now = f.now.Add(time.Hour)
		if got := f.status(c); got != http.StatusOK {
			t.Fatalf("after %v: %d", f.now.Sub(noon), got)
		}
	}
	f.now = noon.Add(7 * 24 * time.Hour)
	if got := f.status(c); got != http.StatusUnauthorized {
		t.Errorf("after seven days: %d", got)
	}
}

func TestForgedExpiryDoesNotOutliveSevenDays(t *testing.T) {
	f := newFixture(t)
	c := f.login(t)
	for id, s := range f.sessions.rows {
		s.Expires = noon.AddDate(10, 0, 0).Unix()
		f.sessions.rows[id] = s
	}
	f.now = noon.Add(8 * 24 * time.Hour)
	if got := f.status(c); got != http.StatusUnauthorized {
		t.Errorf("status %d after eight days", got)
	}
}

func TestPollingWritesSeldom(t *testing.T) {
	f := newFixture(t)
	c := f.login(t)
	f.sessions.puts = 0
	for range 1800 { // an hour of a page that polls each two seconds
		f.now = f.now.Add(2 * time.Second)
		f.status(c)
	}
	if f.sessions.puts > 2 {
		t.Errorf("%d writes in an hour", f.sessions.puts)
	}
}

func TestSessionWorksOnAnotherNode(t *testing.T) {
	a, b := newFixture(t), newFixture(t)
	c := a.login(t)
	b.sessions.rows = a.sessions.rows
	if got := b.status(c); got != http.StatusOK {
		t.Errorf("status %d on the other node", got)
	}
}

func TestLogoutEndsTheSession(t *testing.T) {
	f := newFixture(t)
	c, other := f.login(t), f.login(t)
	r := browser("DELETE", "/admin/v1/session", "")
	r.AddCookie(c)
	w := f.ask(r)
	if w.Code != http.StatusNoContent || w.Result().Cookies()[0].MaxAge != -1 {
		t.Fatalf("logout: status %d, cookies %v", w.Code, w.Result().Cookies())
	}
	if got := f.status(c); got != http.StatusUnauthorized {
		t.Errorf("after logout: %d", got)
	}
	if got := f.status(other); got != http.StatusOK {
		t.Errorf("another session: %d", got)
	}
}

// deletingSessions logs out between the check of a session and the note of its use.
type deletingSessions struct {
	*memorySessions
	reads int
}

func (d *deletingSessions) Session(id string) (Session, bool, error) {
	if d.reads++; d.reads == 2 {
		_ = d.DeleteSession(id)
	}
	return d.memorySessions.Session(id)
}

func TestUseDoesNotUndoALogout(t *testing.T) {
	f := newFixture(t)
	c := f.login(t)
	f.now = f.now.Add(time.Hour)
	f.UI.sessions.store = &deletingSessions{memorySessions: f.sessions}
	f.status(c)
	if len(f.sessions.rows) != 0 {
		t.Error("noting the use brought the session back")
	}
}

func TestStoreFaultOpensNothing(t *testing.T) {
	f := newFixture(t)
	c := f.login(t)
	f.sessions.err = errDisk
	if got := f.status(c); got != http.StatusInternalServerError {
		t.Errorf("status %d with a broken store", got)
	}
	w := f.ask(sessionRequest(f.code(t)))
	if w.Code != http.StatusInternalServerError || len(w.Result().Cookies()) != 0 {
		t.Errorf("login with a broken store: status %d, cookies %v", w.Code, w.Result().Cookies())
	}
}

func TestNoEntropyNoSecret(t *testing.T) {
	f := newFixture(t)
	code := f.code(t)
	f.entropy.r = iotest.ErrReader(errors.New("no entropy"))
	if _, _, err := f.NewLink(t.Context()); err == nil {
		t.Error("a link was made without entropy")
	}
	w := httptest.NewRecorder()
	f.PublicHandler().ServeHTTP(w, sessionRequest(code))
	if w.Code != http.StatusInternalServerError || len(w.Result().Cookies()) != 0 || len(f.sessions.rows) != 0 {
		t.Errorf("a session was made without entropy: status %d", w.Code)
	}
}
