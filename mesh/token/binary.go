package token

import (
	"crypto/ed25519"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// Address families of the binary form.
const (
	familyIPv4 = 4
	familyIPv6 = 6
	familyName = 0 // a DNS name, length-prefixed
)

// maxName is the longest DNS name.
const maxName = 253

func (t Token) marshal() ([]byte, error) {
	if len(t.Seeds) == 0 || len(t.Seeds) > maxSeeds {
		return nil, fmt.Errorf("encode token: %d boxes, want 1 to %d", len(t.Seeds), maxSeeds)
	}
	raw := []byte{version}
	raw = append(raw, t.Mesh[:]...)
	raw = append(raw, t.ID[:]...)
	raw = append(raw, t.Secret[:]...)
	raw = append(raw, byte(len(t.Seeds)))
	for _, seed := range t.Seeds {
		var err error
		if raw, err = appendSeed(raw, seed); err != nil {
			return nil, fmt.Errorf("encode token: %w", err)
		}
	}
	return raw, nil
}

func appendSeed(raw []byte, seed Seed) ([]byte, error) {
	if len(seed.Key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("public key of %d bytes", len(seed.Key))
	}
	if len(seed.Addrs) == 0 || len(seed.Addrs) > maxAddrs {
		return nil, fmt.Errorf("%d addresses of a box, want 1 to %d", len(seed.Addrs), maxAddrs)
	}
	raw = append(raw, seed.Key...)
	raw = append(raw, byte(len(seed.Addrs)))
	for _, addr := range seed.Addrs {
		var err error
		if raw, err = appendAddr(raw, addr); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

func appendAddr(raw []byte, addr string) ([]byte, error) {
	host, port, err := splitAddr(addr)
	if err != nil {
		return nil, err
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return nil, fmt.Errorf("address %q has a zone, which means nothing on another box", addr)
		}
		ip = ip.Unmap()
		family := byte(familyIPv6)
		if ip.Is4() {
			family = familyIPv4
		}
		raw = append(append(raw, family), ip.AsSlice()...)
	} else {
		if !nameOK(host) {
			return nil, fmt.Errorf("address %q has no usable host name", addr)
		}
		raw = append(append(raw, familyName, byte(len(host))), host...)
	}
	return append(raw, byte(port>>8), byte(port)), nil
}

// splitAddr takes host:port alone: an IPv6 address outside brackets would lose its
// last group to the port.
func splitAddr(addr string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("address %q is not host:port", addr)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("address %q has no usable port", addr)
	}
	return host, uint16(n), nil
}

func nameOK(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.', c == '_':
		default:
			return false
		}
	}
	return true
}

// reader takes bytes off the front and remembers whether there were enough.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if r.short || n > len(r.rest) {
		r.short = true
		return make([]byte, n)
	}
	head := r.rest[:n]
	r.rest = r.rest[n:]
	return head
}

func (r *reader) byte() byte { return r.take(1)[0] }

func unmarshal(raw []byte) (Token, error) {
	r := &reader{rest: raw}
	switch v := r.byte(); {
	case v == 0: // there never was one
		return Token{}, mistyped("it has no version")
	case v != version:
		return Token{}, &Error{Kind: Unsupported, Detail: fmt.Sprintf("the token has version %d, this llmgw knows %d", v, version)}
	}
	var t Token
	copy(t.Mesh[:], r.take(len(t.Mesh)))
	copy(t.ID[:], r.take(len(t.ID)))
	copy(t.Secret[:], r.take(len(t.Secret)))
	n := int(r.byte())
	switch {
	case r.short:
		return Token{}, mistyped(cutShort)
	case n == 0:
		return Token{}, mistyped("it names no box to ask")
	case n > maxSeeds:
		return Token{}, mistyped(fmt.Sprintf("it names %d boxes, more than the %d of a token", n, maxSeeds))
	}
	for range n {
		seed, why := readSeed(r)
		if why != "" {
			return Token{}, mistyped(why)
		}
		t.Seeds = append(t.Seeds, seed)
	}
	if len(r.rest) > 0 {
		return Token{}, mistyped("something follows its end")
	}
	return t, nil
}

// readSeed takes one box off the front; why says what is wrong with it.
func readSeed(r *reader) (seed Seed, why string) {
	seed.Key = ed25519.PublicKey(append([]byte(nil), r.take(ed25519.PublicKeySize)...))
	n := int(r.byte())
	switch {
	case r.short:
		return Seed{}, cutShort
	case n == 0:
		return Seed{}, "it names a box without an address"
	case n > maxAddrs:
		return Seed{}, fmt.Sprintf("it names a box with %d addresses, more than the %d of a token", n, maxAddrs)
	}
	for range n {
		addr, ok := readAddr(r)
		switch {
		case r.short:
			return Seed{}, cutShort
		case !ok:
			return Seed{}, "it names a box with an address that cannot be dialled"
		}
		seed.Addrs = append(seed.Addrs, addr)
	}
	return seed, ""
}

func readAddr(r *reader) (string, bool) {
	var host string
	switch r.byte() {
	case familyIPv4:
		host = netip.AddrFrom4([4]byte(r.take(4))).String()
	case familyIPv6:
		ip := netip.AddrFrom16([16]byte(r.take(16)))
		if ip.Is4In6() { // one address, one form
			return "", false
		}
		host = ip.String()
	case familyName:
		host = string(r.take(int(r.byte())))
		if _, err := netip.ParseAddr(host); err == nil || !nameOK(host) {
			return "", false
		}
	default:
		return "", false
	}
	p := r.take(2)
	port := uint16(p[0])<<8 | uint16(p[1])
	return net.JoinHostPort(host, strconv.Itoa(int(port))), port != 0
}
