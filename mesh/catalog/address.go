package catalog

import (
	"fmt"
	"net/netip"
)

// neverReached are networks that no service of a user's is in, and the addresses
// at which clouds give out credentials.
func neverReached() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("192.0.0.0/24"),
		netip.MustParsePrefix("100.100.100.200/32"), netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("fd00:ec2::254/128"),
	}
}

// embedding are IPv6 networks whose addresses stand for one of IPv4, with the
// byte at which it begins.
func embedding() map[netip.Prefix]int {
	return map[netip.Prefix]int{
		netip.MustParsePrefix("64:ff9b::/96"): 12, netip.MustParsePrefix("64:ff9b:1::/48"): 12,
		netip.MustParsePrefix("2002::/16"): 2, netip.MustParsePrefix("::/96"): 12,
	}
}

// RefuseAddress says why a service outside the mesh may not be at an address,
// as it was resolved; empty: it may. private allows loopback and private
// networks; link-local, multicast and metadata addresses are never allowed.
func RefuseAddress(addr netip.Addr, private bool) string {
	addr = addr.Unmap().WithZone("")
	if !addr.IsValid() {
		return "it has no address"
	}
	if addr.Is6() && !addr.IsLoopback() && !addr.IsUnspecified() {
		raw := addr.As16()
		for network, at := range embedding() {
			if network.Contains(addr) {
				return RefuseAddress(netip.AddrFrom4([4]byte(raw[at:at+4])), private)
			}
		}
	}
	switch {
	case addr.IsUnspecified(), addr.IsMulticast(), addr.IsLinkLocalUnicast():
		return fmt.Sprintf("%s is no address of a service", addr)
	}
	for _, network := range neverReached() {
		if network.Contains(addr) {
			return fmt.Sprintf("%s is no address of a service", addr)
		}
	}
	if !private && IsPrivateAddress(addr) {
		return fmt.Sprintf("%s is a private address: --allow-private allows it for this provider", addr)
	}
	return ""
}

// IsPrivateAddress says that an address is not one of the public network:
// loopback, private networks, and those of carriers (RFC 1918, 4193, 6598).
func IsPrivateAddress(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return addr.IsLoopback() || addr.IsPrivate() || netip.MustParsePrefix("100.64.0.0/10").Contains(addr)
}
