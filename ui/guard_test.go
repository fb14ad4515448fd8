package ui

import (
	"net/http"
	"strings"
	"testing"
)

func TestHostHeaderAllowList(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		name, host string
		ok         bool
	}{
		{"IPv4", "192.0.2.7:8770", true},
		{"an address that is not the box's (port forwarding)", "198.51.100.1", true},
		{"IPv6", "[2001:db8::7]:8770", true},
		{"IPv6 without port", "[::1]", true},
		{"loopback name", "localhost:8770", true},
		{"own name", "attic:8770", true},
		{"own name in capitals with a dot", "ATTIC.example.:8770", true},
		{"rebound name", "evil.example", false},
		{"own name as a prefix", "attic.evil.example", false},
		{"own name as a suffix", "evilattic.example", false},
		{"loopback as a prefix", "localhost.evil.example", false},
		{"address as a label", "192.0.2.7.evil.example:8770", false},
		{"address in another notation", "3221225991", false},
		{"empty", "", false},
		{"only a port", ":8770", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := browser("GET", "/", "")
			r.Host = c.host
			w := f.ask(r)
			if got := w.Code == http.StatusOK; got != c.ok {
				t.Fatalf("status %d, want allowed %v", w.Code, c.ok)
			}
			if c.ok {
				return
			}
			b := refusalOf(t, w)
			if b.Error.Code != "host_refused" || !strings.Contains(b.Error.Message, "Host header") ||
				!strings.Contains(b.LLMGW.Hint, "--ui-host") {
				t.Errorf("refusal does not name the header and the remedy: %+v", b)
			}
		})
	}
}

func TestForeignSiteIsRefused(t *testing.T) {
	f := newFixture(t)
	cookie := f.login(t)
	for _, c := range []struct {
		name, method, origin, site, code, says string
	}{
		{"foreign origin", "DELETE", "http://evil.example", "", "origin_refused", "Origin header"},
		{"foreign origin on a read", "GET", "http://evil.example", "", "origin_refused", "Origin header"},
		{"opaque origin", "DELETE", "null", "", "origin_refused", "Origin header"},
		{"same name, other port", "DELETE", "http://192.0.2.7:9999", "", "origin_refused", "Origin header"},
		{"unparsable origin", "DELETE", "http://192.0.2.7:8770:x", "", "origin_refused", "Origin header"},
		{"other scheme", "DELETE", "ftp://192.0.2.7:8770", "", "origin_refused", "Origin header"},
		{"cross-site write without origin", "DELETE", "", "cross-site", "cross_site", "Sec-Fetch-Site header"},
		{"same-site write without origin", "DELETE", "", "same-site", "cross_site", "Sec-Fetch-Site header"},
		{"same-site read: another port of this host", "GET", "", "same-site", "cross_site", "Sec-Fetch-Site header"},
		{"cross-site read", "GET", "", "cross-site", "cross_site", "Sec-Fetch-Site header"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := "/admin/v1/status"
			if c.method == "DELETE" {
				path = "/admin/v1/session"
			}
			r := browser(c.method, path, "")
			r.Header.Del("Origin")
			r.Header.Del("Sec-Fetch-Site")
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			if c.site != "" {
				r.Header.Set("Sec-Fetch-Site", c.site)
			}
			r.AddCookie(cookie)
			w := f.ask(r)
			b := refusalOf(t, w)
			if w.Code != http.StatusForbidden || b.Error.Code != c.code || !strings.Contains(b.Error.Message, c.says) || b.LLMGW.Hint == "" {
				t.Errorf("status %d, %+v; want 403 %s naming %q, with a hint", w.Code, b, c.code, c.says)
			}
		})
	}
	if len(f.sessions.rows) != 1 {
		t.Error("a foreign site ended the session")
	}
}

func TestOwnPageBehindTLSProxyIsAccepted(t *testing.T) {
	f := newFixture(t)
	r := browser("DELETE", "/admin/v1/session", "")
	r.Host = "attic.example"
	r.Header.Set("Origin", "https://attic.example")
	r.AddCookie(f.login(t))
	if w := f.ask(r); w.Code != http.StatusNoContent {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

func TestEveryPublicAnswerCarriesSecurityHeaders(t *testing.T) {
	f := newFixture(t)
	evil := browser("GET", "/", "")
	evil.Host = "evil.example"
	for name, r := range map[string]*http.Request{
		"page": browser("GET", "/", ""), "missing file": browser("GET", "/nothing", ""),
		"refused route": browser("GET", "/admin/v1/status", ""), "refused host": evil,
		"refused method": browser("POST", "/", "{}"),
	} {
		h := f.ask(r).Header()
		csp := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "object-src 'none'"} {
			if !strings.Contains(csp, part) {
				t.Errorf("%s: policy %q lacks %s", name, csp, part)
			}
		}
		if strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q allows inline code", name, csp)
		}
		for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"} {
			if got := h.Get(header); got != want {
				t.Errorf("%s: %s is %q, want %q", name, header, got, want)
			}
		}
		if h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: another site may read the answer", name)
		}
	}
}

func TestDataIsNotCached(t *testing.T) {
	f := newFixture(t)
	r := browser("GET", "/admin/v1/overview", "")
	r.AddCookie(f.login(t))
	if got := f.ask(r).Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control of data is %q", got)
	}
}

// TestWritesOutsideTheAPIAreGuardedToo: no path is left to another site's forms.
func TestWritesOutsideTheAPIAreGuardedToo(t *testing.T) {
	r := browser("POST", "/", "")
	r.Header.Del("Origin")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	w := newFixture(t).ask(r)
	if b := refusalOf(t, w); w.Code != http.StatusForbidden || b.Error.Code != "cross_site" {
		t.Errorf("status %d, %+v; want 403 cross_site", w.Code, b)
	}
}
