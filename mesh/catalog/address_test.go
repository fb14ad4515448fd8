package catalog

import (
	"net/netip"
	"slices"
	"testing"
)

func TestAddressesOfProviders(t *testing.T) {
	never := []string{"0.0.0.0", "169.254.169.254", "169.254.1.1", "fe80::1", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1",
		"100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "0.1.2.3", "::169.254.169.254"}
	private := []string{"127.0.0.1", "127.9.9.9", "::1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd12::1", "::ffff:10.0.0.1",
		"64:ff9b::7f00:1", "2002:0a00:0001::1", "::ffff:127.0.0.1"}
	public := []string{"1.1.1.1", "8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "172.32.0.1", "100.128.0.1"}
	for _, text := range slices.Concat(never, private, public) {
		addr := netip.MustParseAddr(text)
		wantOpen, wantPrivate := slices.Contains(public, text), !slices.Contains(never, text)
		if open, allowed := RefuseAddress(addr, false) == "", RefuseAddress(addr, true) == ""; open != wantOpen || allowed != wantPrivate {
			t.Errorf("%s: open %v, allowed as private %v", text, open, allowed)
		}
	}
	if RefuseAddress(netip.Addr{}, true) == "" {
		t.Error("no address is an address")
	}
}
