package keys

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// maxHops bounds the proxies that are looked back through.
const maxHops = 16

// ClientAddress is where a request comes from. Behind a proxy in one of the
// trusted networks it is what X-Forwarded-For or Forwarded says: the last address
// that is not of a trusted proxy itself, as anybody may have written what stands
// before it. If both headers are there and differ, one is the client's own word,
// and the proxy's address is taken. The zero Addr: it is not known.
func ClientAddress(req *http.Request, trusted []netip.Prefix) netip.Addr {
	peer := hostAddress(req.RemoteAddr)
	if !within(peer, trusted) {
		return peer
	}
	x, saidX := lastForeign(forwardedFor(req.Header), trusted)
	f, saidF := lastForeign(forwarded(req.Header), trusted)
	switch {
	case saidX && saidF && x != f:
		return peer
	case saidX && x.IsValid():
		return x
	case saidF && f.IsValid():
		return f
	}
	return peer
}

// ClientURL is where the client reached this box, without a path: scheme and host. A
// trusted proxy tells how it was reached itself.
func ClientURL(req *http.Request, trusted []netip.Prefix) string {
	u := url.URL{Scheme: "http", Host: req.Host}
	if req.TLS != nil {
		u.Scheme = "https"
	}
	if within(hostAddress(req.RemoteAddr), trusted) {
		switch scheme := strings.ToLower(first(req.Header.Get("X-Forwarded-Proto"))); scheme {
		case "http", "https":
			u.Scheme = scheme
		}
		if host := first(req.Header.Get("X-Forwarded-Host")); isHost(host) {
			u.Host = host
		}
	}
	return u.String()
}

// first is what the proxy nearest to the client wrote into a list.
func first(list string) string {
	one, _, _ := strings.Cut(list, ",")
	return strings.TrimSpace(one)
}

func isHost(text string) bool {
	u, err := url.Parse("http://" + text)
	return err == nil && text != "" && u.Host == text
}

func within(a netip.Addr, networks []netip.Prefix) bool {
	for _, n := range networks {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// lastForeign walks from the nearest hop outwards. It gives the nearest hop that it
// understands when a farther one cannot be read; said is false without the header.
func lastForeign(hops []string, trusted []netip.Prefix) (found netip.Addr, said bool) {
	for i := len(hops) - 1; i >= 0 && i >= len(hops)-maxHops; i-- {
		a := hostAddress(hops[i])
		if !a.IsValid() {
			break
		}
		found = a
		if !within(a, trusted) {
			break
		}
	}
	return found, len(hops) > 0
}

func forwardedFor(h http.Header) []string {
	var hops []string
	for _, line := range h.Values("X-Forwarded-For") {
		hops = append(hops, strings.Split(line, ",")...)
	}
	return hops
}

// forwarded takes the for= of each element of RFC 7239's header. An element
// without one is a hop that nothing is known of.
func forwarded(h http.Header) []string {
	var hops []string
	for _, line := range h.Values("Forwarded") {
		for element := range strings.SplitSeq(line, ",") {
			hop := ""
			for pair := range strings.SplitSeq(element, ";") {
				name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
				if strings.EqualFold(name, "for") {
					hop = strings.Trim(strings.TrimSpace(value), `"`)
				}
			}
			hops = append(hops, hop)
		}
	}
	return hops
}

// hostAddress reads an address with or without port, brackets and zone.
func hostAddress(text string) netip.Addr {
	text = strings.TrimSpace(text)
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr().Unmap().WithZone("")
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap().WithZone("")
}
