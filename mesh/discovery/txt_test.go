package discovery

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const testPeer = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"

func TestAnnouncementRoundTrip(t *testing.T) {
	cases := map[string]string{
		"box-1":                    "box-1",
		"Küche":                    "Küche",
		`quote" back\slash`:        "quote_ back_slash",
		"tab\tand\x00nul":          "tab_and_nul",
		"":                         "",
		strings.Repeat("é", 60):    strings.Repeat("é", 31),
		"name=with;signs, and = !": "name=with;signs, and = !",
	}
	for name, want := range cases {
		self := Self{Peer: testPeer, Name: name, Port: 8771, Boot: 42, Settled: true, Hint: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}}
		for _, rec := range self.txt() {
			if len(rec) > maxTXT || !utf8.ValidString(rec) {
				t.Errorf("record %q", rec)
			}
		}
		got, port, err := parseTXT(self.txt())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Group{Source: "mdns", Peer: testPeer, Name: want, Boot: 42, Hint: self.Hint, Settled: true}, got); diff != "" || port != 8771 {
			t.Errorf("%q: port %d\n%s", name, port, diff)
		}
	}
}

func TestAnnouncementHoldsNoSecretAndNoAddress(t *testing.T) {
	self := Self{Peer: testPeer, Name: "box", Port: 8771, Boot: 1, Hint: [8]byte{9}}
	var size int
	for _, rec := range self.txt() {
		key, _, _ := strings.Cut(rec, "=")
		if !strings.Contains("v id p b n h s", key) {
			t.Errorf("unexpected record %q", rec)
		}
		size += len(rec) + 1
	}
	if size > 400 {
		t.Errorf("TXT of %d bytes", size)
	}
}

func TestBrokenAnnouncements(t *testing.T) {
	good := Self{Peer: testPeer, Port: 1, Boot: 1}.txt()
	change := func(key, value string) []string {
		var out []string
		for _, rec := range good {
			if !strings.HasPrefix(rec, key+"=") {
				out = append(out, rec)
			} else if value != "" {
				out = append(out, key+"="+value)
			}
		}
		return out
	}
	for name, in := range map[string][]string{
		"nothing":             nil,
		"no version":          change("v", ""),
		"another version":     change("v", "2"),
		"no peer":             change("id", ""),
		"peer with a slash":   change("id", "12D3/x"),
		"endless peer":        change("id", strings.Repeat("a", maxPeer+1)),
		"no port":             change("p", ""),
		"port zero":           change("p", "0"),
		"port out of range":   change("p", "65536"),
		"port in words":       change("p", "http"),
		"not key and value":   {"v", "id", "p"},
		"record over the cap": change("id", strings.Repeat("a", maxTXT)),
	} {
		if g, _, err := parseTXT(in); err == nil {
			t.Errorf("%s: %+v", name, g)
		}
	}
	// What is only of use for display may be missing.
	for _, key := range []string{"b", "n", "h"} {
		if _, _, err := parseTXT(change(key, "")); err != nil {
			t.Errorf("without %s: %v", key, err)
		}
	}
	if g, _, err := parseTXT(change("h", "abc")); err != nil || g.Hint != [8]byte{} {
		t.Errorf("a broken hint: %+v %v", g, err)
	}
	// The first of two stands, as RFC 6763 says.
	if g, _, err := parseTXT(append(good, "id=other")); err != nil || g.Peer != testPeer {
		t.Errorf("twice: %+v %v", g, err)
	}
}

func FuzzParseTXT(f *testing.F) {
	f.Add(strings.Join(Self{Peer: testPeer, Name: "n", Port: 8771, Boot: 7, Hint: [8]byte{1}}.txt(), "\n"))
	f.Fuzz(func(t *testing.T, in string) {
		g, port, err := parseTXT(strings.Split(in, "\n"))
		if err != nil {
			return
		}
		if g.Peer == "" || port < 1 || port > 65535 || len(g.Name) > maxName {
			t.Fatalf("%+v port %d", g, port)
		}
		again, _, err := parseTXT(Self{Peer: g.Peer, Name: g.Name, Port: port, Boot: g.Boot, Hint: g.Hint, Settled: g.Settled}.txt())
		if err != nil || !cmp.Equal(again, g) {
			t.Fatalf("%+v becomes %+v (%v)", g, again, err)
		}
	})
}

// changed is an announcement with one record replaced; without a value it is left out.
func changed(key, value string) []string {
	var out []string
	for _, rec := range (Self{Peer: testPeer, Name: "box", Port: 8771, Boot: 7, Hint: [8]byte{1}, Settled: true}).txt() {
		if !strings.HasPrefix(rec, key+"=") {
			out = append(out, rec)
		} else if value != "" {
			out = append(out, key+"="+value)
		}
	}
	return out
}

func TestAnnouncementIsFixed(t *testing.T) {
	self := Self{Peer: testPeer, Name: "box 1", Port: 8771, Boot: 18446744073709551615, Settled: true, Hint: [8]byte{0, 0xab, 0xff}}
	want := []string{"s=1", "v=1", "id=" + testPeer, "p=8771", "b=18446744073709551615", "n=box 1", "h=00abff0000000000"}
	if diff := cmp.Diff(want, self.txt()); diff != "" {
		t.Error(diff)
	}
	if got := (Self{Peer: testPeer}).txt()[0]; got != "s=0" {
		t.Errorf("a provisional mesh is announced as %s", got)
	}
}

func TestAnnouncementOfAnyBoxIsRead(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		self := Self{
			Peer: rapid.StringMatching(`[1-9A-HJ-NP-Za-km-z]{1,128}`).Draw(rt, "peer"), Name: rapid.String().Draw(rt, "name"),
			Port: rapid.IntRange(1, 65535).Draw(rt, "port"), Boot: rapid.Uint64().Draw(rt, "boot"), Settled: rapid.Bool().Draw(rt, "settled"),
			Hint: [8]byte(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(rt, "hint")),
		}
		records := rapid.Permutation(self.txt()).Draw(rt, "records")
		got, port, err := parseTXT(records)
		want := Group{Source: "mdns", Peer: self.Peer, Name: escapeName(self.Name), Hint: self.Hint, Boot: self.Boot, Settled: self.Settled}
		if diff := cmp.Diff(want, got); err != nil || port != self.Port || diff != "" {
			rt.Errorf("port %d, %v\n%s", port, err, diff)
		}
	})
}

func TestNamesAreCappedAndEscaped(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringN(0, 200, -1), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(rt, "name")
		got := escapeName(name)
		if len(got) > maxName || !utf8.ValidString(got) {
			rt.Errorf("%q becomes %q of %d bytes", name, got, len(got))
		}
		for _, r := range got {
			if !unicode.IsPrint(r) || strings.ContainsRune("\\\"", r) {
				rt.Errorf("%q leaves %q", name, r)
			}
		}
		if again := escapeName(got); again != got {
			rt.Errorf("%q becomes %q and then %q", name, got, again)
		}
		if n := utf8.RuneCountInString(got); n < utf8.RuneCountInString(name) && len(got) <= maxName-utf8.UTFMax {
			rt.Errorf("%q is cut to %d bytes", name, len(got))
		}
	})
}

func TestNames(t *testing.T) {
	for in, want := range map[string]string{
		"\u202eevil":                  "_evil",
		"zero\u200bwidth":             "zero_width",
		"line\nfeed":                  "line_feed",
		"\x1b[31mred":                 "_[31mred",
		"no-break\u00a0space":         "no-break_space",
		"half \xc3":                   "half \ufffd",
		"箱":                           "箱",
		"📦 box":                       "📦 box",
		"id=other":                    "id=other",
		"../../etc":                   "../../etc",
		strings.Repeat("a", 63):       strings.Repeat("a", 63),
		strings.Repeat("a", 64):       strings.Repeat("a", 63),
		strings.Repeat("a", 62) + "é": strings.Repeat("a", 62),
		strings.Repeat("📦", 16):       strings.Repeat("📦", 15),
	} {
		if got := escapeName(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
		got, _, err := parseTXT(changed("n", in))
		if err != nil || got.Name != want {
			t.Errorf("%q of another box is shown as %q (%v)", in, got.Name, err)
		}
	}
}

// TestRecordsAsTheDNSLibraryGivesThem: it writes what it receives as zone files do.
func TestRecordsAsTheDNSLibraryGivesThem(t *testing.T) {
	for in, want := range map[string]string{
		`n=box`:              "n=box",
		`n=K\195\188che`:     "n=Küche",
		`n=\240\159\147\166`: "n=📦",
		`n=say \"x\" and \\`: `n=say "x" and \`,
		`n=\000\255`:         "n=\x00\xff",
		`n=\256`:             "n=256",
		`n=\12`:              "n=12",
		`n=\1`:               "n=1",
		`n=\`:                `n=\`,
		`n=\\195`:            `n=\195`,
		`n=\195\`:            "n=\xc3\\",
		`n=\+12`:             "n=+12",
		"":                   "",
	} {
		if got := plainTXT(in); got != want {
			t.Errorf("%s becomes %q, want %q", in, got, want)
		}
	}
}

// zoneForm is what the DNS library makes of the bytes of a record.
func zoneForm(rec string) string {
	var b strings.Builder
	for _, c := range []byte(rec) {
		switch {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(rune(c)))
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\%03d`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func FuzzPlainTXT(f *testing.F) {
	for _, s := range []string{"n=Küche", `\`, `\25`, "a\"b", "\x00\xff", `\999`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, rec string) {
		if got := plainTXT(zoneForm(rec)); got != rec {
			t.Fatalf("%q is received as %q", rec, got)
		}
		if got := plainTXT(rec); len(got) > len(rec) {
			t.Fatalf("%q grows to %q", rec, got)
		}
	})
}

func TestRefusalsOfAnnouncements(t *testing.T) {
	for name, c := range map[string]struct {
		in   []string
		want string
	}{
		"nothing":                  {nil, `read announcement: version ""`},
		"one empty string":         {[]string{""}, `read announcement: version ""`},
		"of another program":       {[]string{"path=/", "txtvers=1", "model=Printer"}, `read announcement: version ""`},
		"no value":                 {[]string{"v"}, `read announcement: version ""`},
		"a later version":          {changed("v", "2"), `read announcement: version "2"`},
		"a version with a zero":    {changed("v", "01"), `read announcement: version "01"`},
		"a version of control":     {changed("v", "\x1b[2J"), `read announcement: version "\x1b[2J"`},
		"no peer":                  {changed("id", ""), "read announcement: no usable peer ID"},
		"a peer with a space":      {changed("id", testPeer+" "), "read announcement: no usable peer ID"},
		"a peer of two lines":      {changed("id", testPeer+"\nx"), "read announcement: no usable peer ID"},
		"a peer in another script": {changed("id", "１２Ｄ３"), "read announcement: no usable peer ID"},
		"a peer with a zero":       {changed("id", "0"+testPeer[1:]), "read announcement: no usable peer ID"},
		"a peer of 129 characters": {changed("id", strings.Repeat("a", 129)), "read announcement: no usable peer ID"},
		"no port":                  {changed("p", ""), `read announcement: port ""`},
		"port zero":                {changed("p", "0"), `read announcement: port "0"`},
		"a port below zero":        {changed("p", "-1"), `read announcement: port "-1"`},
		"a port beyond 16 bits":    {changed("p", "65536"), `read announcement: port "65536"`},
		"a port with a sign":       {changed("p", "+80"), `read announcement: port "+80"`},
		"a port in hex":            {changed("p", "0x50"), `read announcement: port "0x50"`},
		"a port with a space":      {changed("p", " 80"), `read announcement: port " 80"`},
		"a record of over 255":     {changed("v", "1"+strings.Repeat(" ", 255)), `read announcement: version ""`},
		"keys in capitals":         {[]string{"V=1", "ID=" + testPeer, "P=1"}, `read announcement: version ""`},
	} {
		g, port, err := parseTXT(c.in)
		if err == nil || err.Error() != c.want || port != 0 || !cmp.Equal(g, Group{}) {
			t.Errorf("%s: %+v, %d, %v; want %s", name, g, port, err, c.want)
		}
	}
}

// TestWhatMayBeMissingOrBroken: boot, name, hint and settled are of use when they are
// there.
func TestWhatMayBeMissingOrBroken(t *testing.T) {
	whole := Group{Source: "mdns", Peer: testPeer, Name: "box", Boot: 7, Hint: [8]byte{1}, Settled: true}
	without := func(change func(*Group)) Group { g := whole; change(&g); return g }
	noBoot := without(func(g *Group) { g.Boot = 0 })
	noHint := without(func(g *Group) { g.Hint = [8]byte{} })
	young := without(func(g *Group) { g.Settled = false })
	for name, c := range map[string]struct {
		in   []string
		want Group
	}{
		"all there":                 {changed("x", ""), whole},
		"no boot":                   {changed("b", ""), noBoot},
		"a boot in words":           {changed("b", "new"), noBoot},
		"a boot below zero":         {changed("b", "-7"), noBoot},
		"no hint":                   {changed("h", ""), noHint},
		"a hint of 7 bytes":         {changed("h", "01000000000000"), noHint},
		"a hint of 9 bytes":         {changed("h", "010000000000000000"), noHint},
		"half a byte of hint":       {changed("h", "0100000000000000f"), noHint},
		"a hint in capitals":        {changed("h", "AB00000000000000"), without(func(g *Group) { g.Hint = [8]byte{0xab} })},
		"a hint in words":           {changed("h", "yes"), noHint},
		"no name":                   {changed("n", ""), without(func(g *Group) { g.Name = "" })},
		"not settled":               {changed("s", "0"), young},
		"settled in words":          {changed("s", "true"), young},
		"nothing of settled":        {changed("s", ""), young},
		"an unknown record":         {append(changed("x", ""), "z=26", "zz", "=", "=="), whole},
		"a name with an equal sign": {changed("n", "a=b=c"), without(func(g *Group) { g.Name = "a=b=c" })},
	} {
		got, port, err := parseTXT(c.in)
		if diff := cmp.Diff(c.want, got); err != nil || port != 8771 || diff != "" {
			t.Errorf("%s: port %d, %v\n%s", name, port, err, diff)
		}
	}
}

// TestTheFirstOfTwoStands for every key, in every place.
func TestTheFirstOfTwoStands(t *testing.T) {
	good := changed("x", "")
	want, port, err := parseTXT(good)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range good {
		key, _, _ := strings.Cut(rec, "=")
		for _, second := range []string{key + "=9", key + "=", key} {
			got, again, err := parseTXT(append(slices.Clone(good), second))
			if diff := cmp.Diff(want, got); err != nil || again != port || diff != "" {
				t.Errorf("with %q behind: %v\n%s", second, err, diff)
			}
		}
	}
}

func TestRankAddrs(t *testing.T) {
	ips := func(texts ...string) []netip.Addr {
		var out []netip.Addr
		for _, s := range texts {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	attached := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/64")}
	got := rankAddrs(ips("192.0.2.1", "10.1.2.3", "fd00:2::1", "fd00:1::1", "127.0.0.1", "169.254.1.1", "fe80::1", "224.0.0.1", "0.0.0.0", "10.1.2.3", "::ffff:10.1.2.3"), 8771, attached)
	want := []string{"10.1.2.3:8771", "[fd00:1::1]:8771", "192.0.2.1:8771", "[fd00:2::1]:8771"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var many []netip.Addr
	for i := range 100 {
		many = append(many, netip.AddrFrom4([4]byte{10, 1, 1, byte(i)}))
	}
	if got := rankAddrs(many, 1, nil); len(got) != maxAddrs {
		t.Errorf("%d addresses of one announcement", len(got))
	}
}

// TestRankAddrsOfAnyAnnouncement: those of an attached prefix first, else in the order
// that they came in, each once, and none that means another box to everybody.
func TestRankAddrsOfAnyAnnouncement(t *testing.T) {
	near := netip.MustParsePrefix("10.0.0.0/8")
	rapid.Check(t, func(rt *rapid.T) {
		first := rapid.SampledFrom([]byte{10, 10, 0, 127, 169, 192, 224, 203})
		var ips []netip.Addr
		for range rapid.IntRange(0, 40).Draw(rt, "addresses") {
			ips = append(ips, netip.AddrFrom4([4]byte{first.Draw(rt, "net"), 254, 0, rapid.ByteRange(0, 9).Draw(rt, "host")}))
		}
		got := rankAddrs(ips, 8771, []netip.Prefix{near})
		places := make([]int, len(got))
		useful := map[netip.Addr]bool{}
		for _, ip := range ips {
			if reachable(ip) && !ip.IsLoopback() {
				useful[ip] = true
			}
		}
		for i, text := range got {
			at := netip.MustParseAddrPort(text)
			if !useful[at.Addr()] || at.Port() != 8771 {
				rt.Errorf("%s is of no use", text)
			}
			places[i] = slices.Index(ips, at.Addr())
			if !near.Contains(at.Addr()) {
				places[i] += len(ips)
			}
		}
		if !slices.IsSorted(places) || len(slices.Compact(slices.Clone(places))) != len(places) {
			rt.Errorf("%v of %v", got, ips)
		}
		if len(got) != min(len(useful), maxAddrs) {
			rt.Errorf("%d of %d addresses", len(got), len(useful))
		}
	})
}

func TestReachable(t *testing.T) {
	for text, want := range map[string]bool{
		"192.0.2.1": true, "10.0.0.1": true, "172.17.0.1": true, "2001:db8::1": true, "fd00::1": true, "127.0.0.1": true, "::1": true,
		"0.0.0.0": false, "::": false, "169.254.1.1": false, "fe80::1": false, "fe80::1%eth0": false, "224.0.0.251": false, "ff02::fb": false,
	} {
		if got := reachable(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if reachable(netip.Addr{}) {
		t.Error("no address is one")
	}
}
