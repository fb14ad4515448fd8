package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/libp2p/go-libp2p/core/sec"
	ma "github.com/multiformats/go-multiaddr"
	"pgregory.net/rapid"

	"llmgw/mesh/token"
)

// TestWordsOfOthersAreFitToBeShown: names and details, whatever is in them.
func TestWordsOfOthersAreFitToBeShown(t *testing.T) {
	for in, want := range map[string]string{
		"rack 7": "rack 7", " rack\t7\n": "rack7", "": "", "\x00\x1b[2J": "[2J", "größe 7 é 箱": "größe 7 é 箱",
		"a\u202eb\u200bc\u00a0d": "abcd", "\u0085\u009b31m": "31m", "a\xffb": "a\ufffdb",
		strings.Repeat("x", 2*maxName):  strings.Repeat("x", maxName),
		strings.Repeat("箱", 2*maxName):  strings.Repeat("箱", maxName),
		strings.Repeat("\x01", 1<<16):   "",
		strings.Repeat(" ", 80) + "end": "",
	} {
		if got := cleanName(in); got != want {
			t.Errorf("name %.40q became %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		raw := string(rapid.SliceOfN(rapid.Byte(), 0, 900).Draw(rt, "bytes")) + rapid.String().Draw(rt, "text")
		for what, got := range map[string]string{"name": cleanName(raw), "detail": cleanDetail(raw)} {
			most := map[string]int{"name": maxName, "detail": maxDetail}[what]
			if n := utf8.RuneCountInString(got); n > most || !utf8.ValidString(got) {
				rt.Fatalf("%s of %d characters: %q", what, n, got)
			}
			if i := strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
				rt.Fatalf("%s has %q", what, got[i:])
			}
		}
		if once := cleanName(raw); cleanName(once) != once {
			rt.Fatalf("%q is cleaned to %q", once, cleanName(once))
		}
		if once := cleanDetail(raw); cleanDetail(once) != once {
			rt.Fatalf("%q is cleaned to %q", once, cleanDetail(once))
		}
	})
}

func TestAddressesOfOthersAreCapped(t *testing.T) {
	long := strings.Repeat("x", maxAddress)
	var many []string
	for i := range 3 * maxAddresses {
		many = append(many, fmt.Sprint(i))
	}
	if got := capAddresses(append([]string{long, long + "x"}, many...)); len(got) != maxAddresses || got[0] != long || got[1] != "0" {
		t.Errorf("%d addresses, %q", len(got), got)
	}
	if got := capAddresses(nil); len(got) != 0 {
		t.Errorf("of none %q", got)
	}
	for name, raw := range map[string][]byte{"nothing": nil, "no CBOR": {0xff}, "a number": {1}, "numbers": {0x82, 1, 2}, "a head alone": {0x9a, 0xff, 0xff, 0xff, 0xff}} {
		if got := decodeAddresses(raw); got != nil {
			t.Errorf("%s: %q", name, got)
		}
	}
	encoded, err := marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	if got := decodeAddresses(encoded); len(got) != maxAddresses {
		t.Errorf("%d addresses", len(got))
	}
}

func TestReasonsForAPersonWithANetworkProblem(t *testing.T) {
	c := newCast(t, "a", "b")
	deadline, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"refused":       {&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, "connection refused"},
		"no route":      {fmt.Errorf("dial: %w", syscall.EHOSTUNREACH), "no route to host"},
		"deadline":      {fmt.Errorf("dial: %w", deadline.Err()), "timed out"},
		"io deadline":   {&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, "timed out"},
		"closed":        {fmt.Errorf("read frame: %w", io.EOF), "the other side closed the connection"},
		"reset":         {errors.New("stream reset (remote): code: 0x0"), "the other side closed the connection"},
		"somebody else": {fmt.Errorf("dial: %w", sec.ErrPeerIDMismatch{Expected: c.ids["a"], Actual: c.ids["b"]}), "another box answers there: " + c.ids["b"].String()},
		"anything":      {errors.New("out of luck"), "out of luck"},
	} {
		if got := reason(tc.err); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	// Without a word on each address all have the same.
	var typed *token.Error
	if err := unreachable([]string{"192.0.2.1:1", "192.0.2.2:2"}, io.EOF); !errors.As(err, &typed) || typed.Kind != token.Unreachable {
		t.Fatal(err)
	}
	want := []token.Attempt{{Addr: "192.0.2.1:1", Reason: "the other side closed the connection"}, {Addr: "192.0.2.2:2", Reason: "the other side closed the connection"}}
	if len(typed.Attempts) != 2 || typed.Attempts[0] != want[0] || typed.Attempts[1] != want[1] {
		t.Errorf("%+v", typed.Attempts)
	}
}

func TestAddressesInAndOut(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1:8771": "/ip4/192.0.2.1/tcp/8771", "[2001:db8::1]:8771": "/ip6/2001:db8::1/tcp/8771", "box.example:1": "/dns/box.example/tcp/1",
		"[::ffff:192.0.2.1]:1": "/ip4/192.0.2.1/tcp/1", "[fe80::1%eth0]:8771": "/ip6zone/eth0/ip6/fe80::1/tcp/8771",
		"192.0.2.1": "", ":8771": "", "192.0.2.1:99999": "", "[fe80::1%]:1": "", "a/b:1": "",
	} {
		got := dialAddrs([]string{in})
		if len(got) > 1 || len(got) == 1 && got[0].String() != want || len(got) == 0 && want != "" {
			t.Errorf("%s becomes %v, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"/ip4/192.0.2.1/tcp/8771": "192.0.2.1:8771", "/ip6/2001:db8::1/tcp/1": "[2001:db8::1]:1", "/dns4/box.example/tcp/1": "box.example:1",
		"/dns/box.example/tcp/1": "box.example:1", "/dns6/box.example/tcp/1": "box.example:1", "/ip4/192.0.2.1/udp/1": "/ip4/192.0.2.1/udp/1",
		"/ip6zone/eth0/ip6/fe80::1/tcp/8771": "[fe80::1%eth0]:8771",
	} {
		if got := plainAddr(ma.StringCast(in)); got != want {
			t.Errorf("%s is written %q, want %q", in, got, want)
		}
	}
}

// TestWhereACallerListens: the port that it calls from says nothing.
func TestWhereACallerListens(t *testing.T) {
	announced := multiaddrs([]string{"/dns4/box.example/tcp/1", "/ip4/192.0.2.1/tcp/8771", "/ip6/2001:db8::1/tcp/8772"})
	for from, want := range map[string]string{
		"/ip4/192.0.2.1/tcp/50000": "192.0.2.1:8771", "/ip6/2001:db8::1/tcp/50000": "[2001:db8::1]:8772",
		"/ip4/192.0.2.9/tcp/50000": "192.0.2.9", "/dns4/x.example/tcp/5": "x.example:5",
	} {
		if got := listening(ma.StringCast(from), announced); got != want {
			t.Errorf("from %s: %q, want %q", from, got, want)
		}
	}
}

func TestWhatIsAnnounced(t *testing.T) {
	addrs := func(texts ...string) []ma.Multiaddr { return multiaddrs(texts) }
	for name, c := range map[string]struct {
		in   []ma.Multiaddr
		want []ma.Multiaddr
	}{
		"nothing":                         {nil, nil},
		"loopback when there is no more":  {addrs("/ip4/127.0.0.1/tcp/1", "/ip6/::1/tcp/1"), addrs("/ip4/127.0.0.1/tcp/1", "/ip6/::1/tcp/1")},
		"no loopback beside others":       {addrs("/ip4/127.0.0.1/tcp/1", "/ip4/192.0.2.1/tcp/1"), addrs("/ip4/192.0.2.1/tcp/1")},
		"no link-local ones":              {addrs("/ip4/169.254.3.4/tcp/1", "/ip6/fe80::1/tcp/1", "/ip6/2001:db8::1/tcp/1"), addrs("/ip6/2001:db8::1/tcp/1")},
		"link-local alone is nothing":     {addrs("/ip4/169.254.3.4/tcp/1"), nil},
		"what has no IP is somebody's":    {addrs("/dns4/box.example/tcp/1", "/ip4/127.0.0.1/tcp/1"), addrs("/dns4/box.example/tcp/1")},
		"private ranges are the usual":    {addrs("/ip4/10.1.2.3/tcp/1", "/ip6/fd00::1/tcp/1"), addrs("/ip4/10.1.2.3/tcp/1", "/ip6/fd00::1/tcp/1")},
		"a VPN's shared range is as good": {addrs("/ip4/100.64.0.9/tcp/1"), addrs("/ip4/100.64.0.9/tcp/1")},
	} {
		if got := announced(c.in); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	for name, want := range map[string]bool{
		"docker0": true, "br-8f3a": true, "veth12": true, "virbr0": true, "cni0": true, "flannel.1": true, "cilium_host": true,
		"eth0": false, "br0": false, "bond0": false, "enp3s0": false, "wg0": false, "tailscale0": false, "lo": false,
	} {
		if got := isBridge(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestMeshPortsThatCannotBe(t *testing.T) {
	for listen, text := range map[string]string{
		"": `read mesh address ""`, "8771": `read mesh address "8771"`, "box.example:8771": `read mesh address "box.example:8771"`,
		"192.0.2.77:0": "listen on mesh port 192.0.2.77:0", "127.0.0.1:99999": "listen on mesh port 127.0.0.1:99999",
	} {
		_, err := listenAddrs(listen)
		wantText(t, listen, err, text)
	}
	got, err := listenAddrs("127.0.0.1:0")
	if err != nil || len(got) != 1 || got[0].String() != "/ip4/127.0.0.1/tcp/0" {
		t.Errorf("%v, %v", got, err)
	}
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var op *net.OpError
	if _, err := listenAddrs(taken.Addr().String()); !errors.As(err, &op) || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port in use: %v", err)
	}
	at := netip.MustParseAddrPort(taken.Addr().String())
	for err, want := range map[error]bool{
		probePort(at.Addr(), "0"): false, &net.OpError{Err: syscall.EAFNOSUPPORT}: true, &net.OpError{Err: syscall.EADDRNOTAVAIL}: true, syscall.EADDRINUSE: false,
	} {
		if got := noIPv6(err); got != want {
			t.Errorf("%v: no IPv6 %v", err, got)
		}
	}
}

// TestMeshIDsTellNothing: what others see of a mesh is derived, differs by mesh and peer,
// and is the same each time.
func TestMeshIDsTellNothing(t *testing.T) {
	c := newCast(t, "a", "b")
	other, err := secretRoot([]byte("another secret of some length"))
	if err != nil {
		t.Fatal(err)
	}
	id := c.root.mesh
	if id.hint(c.ids["a"]) == id.hint(c.ids["b"]) || id.hint(c.ids["a"]) == other.mesh.hint(c.ids["a"]) {
		t.Error("hints do not tell peers or meshes apart")
	}
	if id.dhtPrefix() == other.mesh.dhtPrefix() || strings.Contains(id.dhtPrefix(), id.String()[:8]) || id.digestKey() == other.mesh.digestKey() {
		t.Error("names of two meshes are one, or tell the mesh")
	}
	if len(id.tag()) != 16 || !strings.HasPrefix(id.String(), id.tag()) || strings.ToLower(id.String()) != id.String() || len(id.String()) != 52 {
		t.Errorf("mesh ID %s, tag %s", id, id.tag())
	}
	for n := range MinSecret {
		if _, err := secretRoot(make([]byte, n)); err == nil {
			t.Errorf("a secret of %d bytes was taken", n)
		}
	}
	if _, err := randomRoot(strings.NewReader("short")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a source that ran dry: %v", err)
	}
	for name, raw := range map[string][]byte{
		"nothing": nil, "another": other.record, "longer": append([]byte{}, append(c.root.record, 0)...),
	} {
		if _, err := genesisKey(id, raw); err == nil {
			t.Errorf("%s is the genesis", name)
		}
	}
	for name, rec := range map[string]genesisRecord{
		"a later version": {Version: 2, Key: make([]byte, 32)}, "a short key": {Version: 1, Key: make([]byte, 31)}, "no key": {Version: 1},
	} {
		raw, err := marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := genesisKey(hashGenesis(raw), raw); err == nil {
			t.Errorf("%s roots a mesh", name)
		}
	}
}
