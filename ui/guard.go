package ui

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// policy lets the page load from its own address alone: no inline script or
// style, no frame, no other site.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard stands before everything on the public port that a cookie opens. A
// page of another site must not reach these routes through the browser of
// someone who is logged in, neither under its own name (Origin) nor under a
// name that it pointed at this box (Host).
func (u *UI) guard(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(u.answer(refuseCrossSite))
	inner := cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secureHeaders(w.Header())
		if err := u.checkRequest(r); err != nil {
			u.answer(func(http.ResponseWriter, *http.Request) error { return err }).ServeHTTP(w, r)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

func secureHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
}

func (u *UI) checkRequest(r *http.Request) error {
	if !u.hostAllowed(r.Host) {
		return &Error{Kind: Forbidden, Code: "host_refused",
			Message: fmt.Sprintf("the Host header names %q, which is not a name of this box", r.Host),
			Hint:    u.cfg.AllowHost}
	}
	if origin := r.Header.Get("Origin"); origin != "" && !sameOrigin(origin, r) {
		return &Error{Kind: Forbidden, Code: "origin_refused",
			Message: fmt.Sprintf("the Origin header names %q, which is not the address of this page (%q)", origin, r.Host),
			Hint:    "open the page itself; a proxy in front must pass the Host header on unchanged"}
	}
	// CrossOriginProtection lets every GET pass. Data is read by the page alone,
	// and another port of this host ("same-site") is another program.
	if site := r.Header.Get("Sec-Fetch-Site"); strings.HasPrefix(r.URL.Path, prefix) && (site == "same-site" || site == "cross-site") {
		return refuseCrossSite(nil, r)
	}
	return nil
}

func refuseCrossSite(_ http.ResponseWriter, r *http.Request) error {
	return &Error{Kind: Forbidden, Code: "cross_site",
		Message: fmt.Sprintf("the Sec-Fetch-Site header says %q: another site's page sent this request", r.Header.Get("Sec-Fetch-Site")),
		Hint:    "open this box's own page and use that"}
}

// hostAllowed keeps rebound names out. An address in the Host header cannot be
// rebound: a browser that sends it was pointed at the address itself.
func (u *UI) hostAllowed(host string) bool {
	name := hostName(host)
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	if name == "localhost" {
		return true
	}
	for _, own := range u.cfg.Hosts() {
		if name != "" && hostName(own) == name {
			return true
		}
	}
	return false
}

// hostName is the name of a Host header in the form that is compared: no port,
// no brackets, no dot at the end, lower case.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// sameOrigin compares scheme, name and port. A proxy that ends TLS makes the
// schemes differ, so plain HTTP here may be https for the browser.
func sameOrigin(origin string, r *http.Request) bool {
	o, err := url.Parse(origin)
	if err != nil || o.Host == "" || !strings.EqualFold(o.Host, r.Host) {
		return false
	}
	return o.Scheme == "https" || (o.Scheme == "http" && r.TLS == nil)
}

// withSession lets a handler see only requests of a live session.
func (u *UI) withSession(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		ok, err := u.sessions.check(r)
		if err != nil {
			return err
		}
		if !ok {
			return &Error{Kind: Unauthorized, Message: "this page wants a session",
				Hint: "type `llmgw ui` on the box and open the link that it prints"}
		}
		return next(w, r)
	}
}
