package catalog

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
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

func TestRefusedAddressesSayWhy(t *testing.T) {
	for text, want := range map[string]string{
		"169.254.169.254": "169.254.169.254 is no address of a service", "::ffff:169.254.169.254": "169.254.169.254 is no address of a service",
		"64:ff9b::a9fe:a9fe": "169.254.169.254 is no address of a service", "2002:a9fe:a9fe::": "169.254.169.254 is no address of a service",
		"fe80::1%eth0": "fe80::1 is no address of a service", "fd00:ec2::254": "fd00:ec2::254 is no address of a service", "ff02::1": "ff02::1 is no address of a service",
		"10.0.0.7": "10.0.0.7 is a private address: --allow-private allows it for this provider", "::1": "::1 is a private address: --allow-private allows it for this provider",
		"fd12::1": "fd12::1 is a private address: --allow-private allows it for this provider", "64:ff9b:1::7f00:1": "127.0.0.1 is a private address: --allow-private allows it for this provider",
	} {
		if got := RefuseAddress(netip.MustParseAddr(text), false); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if got := RefuseAddress(netip.Addr{}, false); got != "it has no address" {
		t.Errorf("no address: %q", got)
	}
}

// An address that stands for one of IPv4 is refused as that one is, however it is embedded.
func TestEmbeddedAddressesAreRefusedAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address"))
		private := rapid.Bool().Draw(t, "private")
		v4 := netip.AddrFrom4(raw)
		want := RefuseAddress(v4, private)
		for _, prefix := range []string{"::ffff:0:0", "64:ff9b::", "64:ff9b:1::", "64:ff9b:1:ffff::"} {
			in := netip.MustParseAddr(prefix).As16()
			copy(in[12:], raw[:])
			if got := RefuseAddress(netip.AddrFrom16(in), private); got != want {
				t.Fatalf("%s: %q, want %q", netip.AddrFrom16(in), got, want)
			}
		}
		in := [16]byte{0x20, 0x02}
		copy(in[2:], raw[:])
		if got := RefuseAddress(netip.AddrFrom16(in), private); got != want {
			t.Fatalf("%s: %q, want %q", netip.AddrFrom16(in), got, want)
		}
		if RefuseAddress(v4, false) == "" && (RefuseAddress(v4, true) != "" || IsPrivateAddress(v4)) {
			t.Fatalf("%s is open and not allowed, or private", v4)
		}
	})
}

func TestEdgesOfPrivateNetworks(t *testing.T) {
	for text, want := range map[string]bool{
		"9.255.255.255": false, "10.0.0.0": true, "10.255.255.255": true, "11.0.0.0": false, "172.15.255.255": false, "172.16.0.0": true, "172.31.255.255": true, "172.32.0.0": false,
		"192.167.255.255": false, "192.168.0.0": true, "192.168.255.255": true, "192.169.0.0": false, "100.63.255.255": false, "100.64.0.0": true, "100.127.255.255": true, "100.128.0.0": false,
		"126.255.255.255": false, "127.0.0.0": true, "127.255.255.255": true, "128.0.0.0": false, "::1": true, "::2": false, "fbff::": false, "fc00::": true, "fdff::": true, "fe00::": false,
		"::ffff:10.0.0.0": true, "fd00::1%eth0": true, "8.8.8.8": false,
	} {
		if got := IsPrivateAddress(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: private %v", text, got)
		}
	}
}
