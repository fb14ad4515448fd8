package discovery

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// service is what our boxes announce.
	service = "_llmgw._tcp"
	domain  = "local"
	// txtVersion is the version of the TXT record.
	txtVersion = "1"
	// maxTXT is the limit of one string of a TXT record.
	maxTXT = 255
	// maxName caps the label in a TXT record, in bytes: packets over 1500 bytes
	// vanish.
	maxName = 63
	// maxAddrs bounds what one announcement can make us dial.
	maxAddrs = 16
	// maxPeer bounds the text of a peer ID.
	maxPeer = 128
)

// Self is what this box announces.
type Self struct {
	Peer string
	Name string
	Port int // mesh port
	Boot uint64
	Hint [8]byte
	// Settled: the box's mesh is one that nobody should replace without asking.
	Settled bool
}

// txt is the announcement: v, id, p(ort), b(oot), n(ame), h(int), s(ettled). No
// addresses, no secrets, no model names.
func (s Self) txt() []string {
	settled := "0"
	if s.Settled {
		settled = "1"
	}
	return []string{
		"s=" + settled,
		"v=" + txtVersion,
		"id=" + s.Peer,
		"p=" + strconv.Itoa(s.Port),
		"b=" + strconv.FormatUint(s.Boot, 10),
		"n=" + escapeName(s.Name),
		"h=" + hex.EncodeToString(s.Hint[:]),
	}
}

// escapeName leaves printable characters, never cuts one in half, and keeps out
// what zone files give a meaning to.
func escapeName(name string) string {
	var b strings.Builder
	for _, r := range name {
		if !unicode.IsPrint(r) || r == '\\' || r == '"' {
			r = '_'
		}
		if b.Len()+utf8.RuneLen(r) > maxName {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// plainTXT undoes how the DNS library gives a string of a record: as zone files write
// it, \DDD for each byte beyond ASCII and a backslash before what has a meaning there.
func plainTXT(rec string) string {
	if !strings.Contains(rec, `\`) {
		return rec
	}
	var b strings.Builder
	for i := 0; i < len(rec); i++ {
		if rec[i] != '\\' || i+1 == len(rec) {
			b.WriteByte(rec[i])
			continue
		}
		if n, err := strconv.ParseUint(rec[i+1:min(i+4, len(rec))], 10, 8); err == nil && i+4 <= len(rec) {
			b.WriteByte(byte(n))
			i += 3
			continue
		}
		i++
		b.WriteByte(rec[i])
	}
	return b.String()
}

// parseTXT reads the announcement of another box, in the form of plainTXT. Everything
// in it is a claim.
func parseTXT(records []string) (Group, int, error) {
	values := map[string]string{}
	for _, rec := range records {
		key, value, ok := strings.Cut(rec, "=")
		if _, twice := values[key]; ok && !twice && len(rec) <= maxTXT {
			values[key] = value
		}
	}
	if values["v"] != txtVersion {
		return Group{}, 0, fmt.Errorf("read announcement: version %q", values["v"])
	}
	g := Group{Source: "mdns", Peer: values["id"], Name: escapeName(values["n"])}
	if g.Peer == "" || len(g.Peer) > maxPeer || strings.ContainsFunc(g.Peer, notBase58) {
		return Group{}, 0, fmt.Errorf("read announcement: no usable peer ID")
	}
	port, err := strconv.ParseUint(values["p"], 10, 16)
	if err != nil || port == 0 {
		return Group{}, 0, fmt.Errorf("read announcement: port %q", values["p"])
	}
	// Boot and hint are of use when they are there; without them the box is
	// still worth showing.
	g.Boot, _ = strconv.ParseUint(values["b"], 10, 64)
	g.Settled = values["s"] == "1"
	if raw, err := hex.DecodeString(values["h"]); err == nil && len(raw) == len(g.Hint) {
		copy(g.Hint[:], raw)
	}
	return g, int(port), nil
}

func notBase58(r rune) bool {
	return !(r >= '1' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z')
}

// rankAddrs orders addresses: first those in a prefix that this box is attached
// to, for they need no router. Useless ones are left out.
func rankAddrs(ips []netip.Addr, port int, attached []netip.Prefix) []string {
	var near, far []string
	seen := map[netip.Addr]bool{}
	for _, ip := range ips {
		ip = ip.Unmap()
		if seen[ip] || !reachable(ip) || ip.IsLoopback() {
			continue
		}
		seen[ip] = true
		addr := netip.AddrPortFrom(ip, uint16(port)).String()
		if inAny(ip, attached) {
			near = append(near, addr)
		} else {
			far = append(far, addr)
		}
	}
	all := append(near, far...)
	return all[:min(len(all), maxAddrs)]
}

// reachable says whether an address means the same box to others. One of a link alone
// does not: it is nothing without the name of an interface.
func reachable(ip netip.Addr) bool {
	return ip.IsValid() && !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsLinkLocalUnicast()
}

func inAny(ip netip.Addr, prefixes []netip.Prefix) bool {
	for _, p := range prefixes {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}
