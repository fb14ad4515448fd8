package token

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFormIsFixed: tokens are carried between versions of llmgw.
func TestFormIsFixed(t *testing.T) {
	const want = "llmgw1." +
		"aeaqeayaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabifbukr2jjngu6uktk" +
		"vlvsw25l5qwgzlhnfvw23qd3kjfddcruocy3vosazysbmzkyjjlettuxdd7e3dnqkgcswi" +
		"on6ramcmaaaca4regbraaeg3qaaaaaaaaaaaaaaaaaahejbqadlcn54c2nzomv4gc3lqnr" +
		"sseqyskja"
	got := text(t, fixed(t))
	if got != want {
		t.Errorf("got %s", got)
	}
	if _, err := Parse(want); err != nil {
		t.Error(err)
	}
}

func TestTheLongestTokenIsRead(t *testing.T) {
	want := full(t)
	s := text(t, want)
	got, err := Parse(s)
	if err != nil {
		t.Fatalf("a text of %d characters: %v", len(s), err)
	}
	if diff := cmp.Diff(raw(t, want), raw(t, got)); diff != "" {
		t.Error(diff)
	}
	broken := s[:len(s)/2] + strings.Repeat("\n", maxText) + s[len(s)/2:]
	if _, err := Parse(broken); err != nil {
		t.Errorf("white space counts: %v", err)
	}
}

func TestAddressesKeepTheirMeaning(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.7:8771":                         "192.0.2.7:8771",
		"192.0.2.7:1":                            "192.0.2.7:1",
		"192.0.2.7:65535":                        "192.0.2.7:65535",
		"192.0.2.7:008771":                       "192.0.2.7:8771",
		"[2001:db8::7]:8771":                     "[2001:db8::7]:8771",
		"[2001:DB8:0:0::7]:8771":                 "[2001:db8::7]:8771",
		"[::ffff:192.0.2.7]:8771":                "192.0.2.7:8771",
		"[::]:8771":                              "[::]:8771",
		"localhost:8771":                         "localhost:8771",
		"Box_7.Example:8771":                     "Box_7.Example:8771",
		"xn--kche-0ra.example:8771":              "xn--kche-0ra.example:8771",
		"box.example.:8771":                      "box.example.:8771",
		longName(maxName) + ":8771":              longName(maxName) + ":8771",
		"[2001:db8:1:2:3:4:5:6]:8771":            "[2001:db8:1:2:3:4:5:6]:8771",
		"[2001:db8::192.0.2.7]:8771":             "[2001:db8::c000:207]:8771",
		"ffff-ffff-ffff.dyn.provider.example:80": "ffff-ffff-ffff.dyn.provider.example:80",
	} {
		got, err := Parse(text(t, fixed(t, in)))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got.Seeds[0].Addrs[0] != want {
			t.Errorf("%s becomes %s, want %s", in, got.Seeds[0].Addrs[0], want)
		}
	}
}

func TestAddressesThatNoTokenHas(t *testing.T) {
	for in, want := range map[string]string{
		"":                       `encode token: address "" is not host:port`,
		"192.0.2.7":              `encode token: address "192.0.2.7" is not host:port`,
		"2001:db8::7":            `encode token: address "2001:db8::7" is not host:port`,
		"2001:db8::7:8771":       `encode token: address "2001:db8::7:8771" is not host:port`,
		"[2001:db8::7]":          `encode token: address "[2001:db8::7]" is not host:port`,
		"[2001:db8::7:8771":      `encode token: address "[2001:db8::7:8771" is not host:port`,
		"2001:db8::7]:8771":      `encode token: address "2001:db8::7]:8771" is not host:port`,
		"/ip4/192.0.2.7/tcp/1":   `encode token: address "/ip4/192.0.2.7/tcp/1" is not host:port`,
		"192.0.2.7:":             `encode token: address "192.0.2.7:" has no usable port`,
		"192.0.2.7:0":            `encode token: address "192.0.2.7:0" has no usable port`,
		"192.0.2.7:65536":        `encode token: address "192.0.2.7:65536" has no usable port`,
		"192.0.2.7:-1":           `encode token: address "192.0.2.7:-1" has no usable port`,
		"192.0.2.7:http":         `encode token: address "192.0.2.7:http" has no usable port`,
		"[fe80::1%eth0]:8771":    `encode token: address "[fe80::1%eth0]:8771" has a zone, which means nothing on another box`,
		":8771":                  `encode token: address ":8771" has no usable host name`,
		"box 7:8771":             `encode token: address "box 7:8771" has no usable host name`,
		"küche:8771":             `encode token: address "küche:8771" has no usable host name`,
		"box/7:8771":             `encode token: address "box/7:8771" has no usable host name`,
		"box\n7:8771":            `encode token: address "box\n7:8771" has no usable host name`,
		longName(254) + ":8771":  fmt.Sprintf("encode token: address %q has no usable host name", longName(254)+":8771"),
		"user@box.example:8771":  `encode token: address "user@box.example:8771" has no usable host name`,
		"https://box.example:80": `encode token: address "https://box.example:80" is not host:port`,
	} {
		_, err := fixed(t, in).Text()
		if err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", in, err, want)
		}
	}
}

func TestTokensThatCannotBeMade(t *testing.T) {
	good := fixed(t).Seeds[0]
	many := func(n int) []Seed {
		out := make([]Seed, n)
		for i := range out {
			out[i] = good
		}
		return out
	}
	for name, c := range map[string]struct {
		seeds []Seed
		want  string
	}{
		"no box":              {nil, "encode token: 0 boxes, want 1 to 8"},
		"too many boxes":      {many(9), "encode token: 9 boxes, want 1 to 8"},
		"no address":          {[]Seed{{Key: good.Key}}, "encode token: 0 addresses of a box, want 1 to 8"},
		"too many addresses":  {[]Seed{{Key: good.Key, Addrs: make([]string, 9)}}, "encode token: 9 addresses of a box, want 1 to 8"},
		"no key":              {[]Seed{{Addrs: good.Addrs}}, "encode token: public key of 0 bytes"},
		"a private key":       {[]Seed{{Key: make([]byte, ed25519.PrivateKeySize), Addrs: good.Addrs}}, "encode token: public key of 64 bytes"},
		"a second bad box":    {[]Seed{good, {Key: good.Key}}, "encode token: 0 addresses of a box, want 1 to 8"},
		"a second bad addr":   {[]Seed{{Key: good.Key, Addrs: []string{"a:1", "b"}}}, `encode token: address "b" is not host:port`},
		"a key cut by a byte": {[]Seed{{Key: good.Key[:31], Addrs: good.Addrs}}, "encode token: public key of 31 bytes"},
	} {
		tok := fixed(t)
		tok.Seeds = c.seeds
		if s, err := tok.Text(); s != "" || err == nil || err.Error() != c.want {
			t.Errorf("%s: got %q, %v, want %s", name, s, err, c.want)
		}
	}
}

// TestFormsThatCannotBe have check characters that match: somebody made them, or a
// later llmgw did.
func TestFormsThatCannotBe(t *testing.T) {
	good := raw(t, fixed(t))
	at := func(i int, b byte) []byte { out := bytes.Clone(good); out[i] = b; return out }
	ip4 := []byte{familyIPv4, 192, 0, 2, 7, 0x22, 0x43}
	const mis = "the token is mistyped: "
	for name, c := range map[string]struct {
		raw  []byte
		kind Kind
		want string
	}{
		"version 0":              {at(0, 0), Mistyped, mis + "it has no version"},
		"version 2":              {at(0, 2), Unsupported, "the token was made by a newer llmgw: the token has version 2, this llmgw knows 1"},
		"version 255":            {at(0, 255), Unsupported, "the token was made by a newer llmgw: the token has version 255, this llmgw knows 1"},
		"version 2 of one byte":  {[]byte{2}, Unsupported, "the token was made by a newer llmgw: the token has version 2, this llmgw knows 1"},
		"no box":                 {at(headSize-1, 0)[:headSize], Mistyped, mis + "it names no box to ask"},
		"fewer boxes than told":  {at(headSize-1, 2), Mistyped, mis + "it is cut short"},
		"more boxes than told":   {append(bytes.Clone(good), good[headSize:]...), Mistyped, mis + "something follows its end"},
		"nine boxes":             {append(at(headSize-1, 9), bytes.Repeat(good[headSize:], 8)...), Mistyped, mis + "it names 9 boxes, more than the 8 of a token"},
		"a byte too much":        {append(bytes.Clone(good), 0), Mistyped, mis + "something follows its end"},
		"a box without address":  {withSeed(t, 0), Mistyped, mis + "it names a box without an address"},
		"nine addresses":         {withSeed(t, append([]byte{9}, bytes.Repeat(ip4, 9)...)...), Mistyped, mis + "it names a box with 9 addresses, more than the 8 of a token"},
		"an address cut short":   {withSeed(t, append([]byte{2}, ip4...)...), Mistyped, mis + "it is cut short"},
		"no port":                {withSeed(t, append([]byte{1}, ip4[:5]...)...), Mistyped, mis + "it is cut short"},
		"an unknown family":      {withSeed(t, 1, 5, 1, 2, 3, 4, 0, 1), Mistyped, mis + "it names a box with an address that cannot be dialled"},
		"port zero":              {withSeed(t, 1, familyIPv4, 192, 0, 2, 7, 0, 0), Mistyped, mis + "it names a box with an address that cannot be dialled"},
		"IPv4 written as IPv6":   {withSeed(t, append([]byte{1, familyIPv6}, append(append(make([]byte, 10), 255, 255, 192, 0, 2, 7), 0, 1)...)...), Mistyped, mis + "it names a box with an address that cannot be dialled"},
		"an empty name":          {withSeed(t, 1, familyName, 0, 0, 1), Mistyped, mis + "it names a box with an address that cannot be dialled"},
		"a name with a slash":    {withSeed(t, 1, familyName, 3, 'a', '/', 'b', 0, 1), Mistyped, mis + "it names a box with an address that cannot be dialled"},
		"a name of control":      {withSeed(t, 1, familyName, 2, 27, '[', 0, 1), Mistyped, mis + "it names a box with an address that cannot be dialled"},
		"a name that is an IP":   {withSeed(t, append(append([]byte{1, familyName, 9}, "192.0.2.7"...), 0, 1)...), Mistyped, mis + "it names a box with an address that cannot be dialled"},
		"a name longer than DNS": {withSeed(t, append(append([]byte{1, familyName, 254}, longName(254)...), 0, 1)...), Mistyped, mis + "it names a box with an address that cannot be dialled"},
	} {
		t.Run(name, func(t *testing.T) { refusedAs(t, framed(c.raw), c.kind, c.want) })
	}
}

// TestEveryPrefixOfAFormIsCutShort: whatever is missing, nothing is made up for it.
func TestEveryPrefixOfAFormIsCutShort(t *testing.T) {
	good := raw(t, fixed(t))
	for n := 1; n < len(good); n++ {
		refusedAs(t, framed(good[:n]), Mistyped, "the token is mistyped: it is cut short")
	}
}

func TestEntropyThatEnds(t *testing.T) {
	for n, want := range map[int]string{
		0:                          "make token ID: EOF",
		len(ID{}) - 1:              "make token ID: unexpected EOF",
		len(ID{}):                  "make token secret: EOF",
		len(ID{}) + SecretSize - 1: "make token secret: unexpected EOF",
	} {
		tok, err := New([32]byte{1}, nil, io.LimitReader(strings.NewReader(strings.Repeat("x", 99)), int64(n)))
		if err == nil || err.Error() != want || tok.Secret != [SecretSize]byte{} || tok.ID != (ID{}) {
			t.Errorf("after %d bytes: %v, %v", n, tok, err)
		}
	}
	if _, err := New([32]byte{1}, nil, io.LimitReader(strings.NewReader(""), 9)); !errors.Is(err, io.EOF) {
		t.Errorf("the cause is lost: %v", err)
	}
}

func TestIDsAreSixteenDigits(t *testing.T) {
	id := fixed(t).ID
	for in, ok := range map[string]bool{
		id.String():                  true,
		strings.ToUpper(id.String()): true,
		"":                           false,
		id.String()[:15]:             false,
		id.String()[:14]:             false,
		id.String() + "00":           false,
		" " + id.String():            false,
		"0x" + id.String()[2:]:       false,
		text(t, fixed(t)):            false,
	} {
		got, err := ParseID(in)
		if (err == nil) != ok || ok && got != id {
			t.Errorf("%q: %v %v", in, got, err)
		}
		if want := "parse token ID: want 16 hexadecimal digits"; !ok && err.Error() != want {
			t.Errorf("%q: %v", in, err)
		}
	}
}
