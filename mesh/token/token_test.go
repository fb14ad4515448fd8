package token

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func testToken(t *testing.T, addrs ...string) Token {
	t.Helper()
	if len(addrs) == 0 {
		addrs = []string{"192.0.2.7:8771", "[2001:db8::7]:8771", "box-7.example:8771"}
	}
	pub, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := New([32]byte{1, 2, 3}, []Seed{{Key: pub, Addrs: addrs}}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func text(t *testing.T, tok Token) string {
	t.Helper()
	s, err := tok.Text()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRoundTrip(t *testing.T) {
	want := testToken(t)
	for name, form := range map[string]func(string) string{
		"as it is":    func(s string) string { return s },
		"capitals":    strings.ToUpper,
		"line broken": func(s string) string { return " " + s[:20] + "\n  " + s[20:60] + "\r\n" + s[60:] + "\n" },
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(form(text(t, want)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRoundTripAnyToken(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var tok Token
		copy(tok.Mesh[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(rt, "mesh"))
		copy(tok.Secret[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "secret"))
		for range rapid.IntRange(1, maxSeeds).Draw(rt, "seeds") {
			tok.Seeds = append(tok.Seeds, Seed{
				Key: rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(rt, "key"),
				Addrs: rapid.SliceOfN(rapid.SampledFrom([]string{
					"10.0.0.1:1", "[::1]:65535", "[fd00::1]:8771", "a.b-c_d:80", "localhost:8771",
				}), 1, maxAddrs).Draw(rt, "addrs"),
			})
		}
		s, err := tok.Text()
		if err != nil {
			rt.Fatal(err)
		}
		got, err := Parse(s)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(tok, got); diff != "" {
			rt.Error(diff)
		}
	})
}

func TestMistyped(t *testing.T) {
	good := text(t, testToken(t))
	swap := func(i int) string {
		c := byte('a')
		if good[i] == c {
			c = 'b'
		}
		return good[:i] + string(c) + good[i+1:]
	}
	cases := map[string]string{
		"empty":             "  \n",
		"no prefix":         strings.TrimPrefix(good, Prefix),
		"another prefix":    "llmgx1." + strings.TrimPrefix(good, Prefix),
		"prefix only":       Prefix,
		"check only":        Prefix + "abcd",
		"one letter":        swap(len(Prefix) + 30),
		"last letter":       swap(len(good) - 1),
		"letter missing":    good[:40] + good[41:],
		"letters exchanged": exchange(good),
		"cut short":         good[:len(good)-9],
		"digit not in base": good[:30] + "1" + good[31:],
		"something behind":  good + "aa",
		"a key":             "llmgw-sk-abcdefghijklmnop",
		"endless":           Prefix + strings.Repeat("a", maxText),
	}
	for name, in := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(in)
			if !errors.Is(err, &Error{Kind: Mistyped}) {
				t.Fatalf("got %v, want mistyped", err)
			}
			if strings.Contains(err.Error(), good[len(Prefix):len(Prefix)+20]) {
				t.Error("the error repeats the token")
			}
		})
	}
}

// exchange swaps the first two neighbours that differ after the prefix.
func exchange(s string) string {
	for i := len(Prefix) + 5; i < len(s)-1; i++ {
		if s[i] != s[i+1] {
			return s[:i] + string(s[i+1]) + string(s[i]) + s[i+2:]
		}
	}
	return ""
}

func TestKeyBelongsToSecretMeshAndID(t *testing.T) {
	a := testToken(t)
	if !a.Key().Equal(a.Key()) {
		t.Fatal("the same token gives two keys")
	}
	for name, change := range map[string]func(*Token){
		"secret": func(t *Token) { t.Secret[0]++ },
		"mesh":   func(t *Token) { t.Mesh[0]++ },
		"ID":     func(t *Token) { t.ID[0]++ },
	} {
		b := a
		change(&b)
		if a.Key().Equal(b.Key()) {
			t.Errorf("another %s gives the same key", name)
		}
	}
}

func TestTranscriptBindsEverything(t *testing.T) {
	tok := testToken(t)
	base := Transcript{Mesh: tok.Mesh, Token: tok.ID, Joiner: "J", Issuer: "I", JoinerNonce: [32]byte{1}, IssuerNonce: [32]byte{2}}
	proof := base.Sign(tok.Key())
	pub := tok.Key().Public().(ed25519.PublicKey)
	if !base.Verify(pub, proof) {
		t.Fatal("the right proof is refused")
	}
	for name, change := range map[string]func(*Transcript){
		"mesh":           func(t *Transcript) { t.Mesh[5]++ },
		"token":          func(t *Transcript) { t.Token[5]++ },
		"joiner":         func(t *Transcript) { t.Joiner = "K" },
		"issuer":         func(t *Transcript) { t.Issuer = "K" },
		"both exchanged": func(t *Transcript) { t.Joiner, t.Issuer = t.Issuer, t.Joiner },
		"border moved":   func(t *Transcript) { t.Joiner, t.Issuer = "JI", "" },
		"joiner nonce":   func(t *Transcript) { t.JoinerNonce[9]++ },
		"issuer nonce":   func(t *Transcript) { t.IssuerNonce[9]++ },
	} {
		other := base
		change(&other)
		if other.Verify(pub, proof) {
			t.Errorf("the proof also holds with another %s", name)
		}
	}
	if base.Verify(nil, proof) || base.Verify(pub, nil) {
		t.Error("a missing key or proof is accepted")
	}
}

func FuzzParse(f *testing.F) {
	tok := Token{Seeds: []Seed{{Key: make([]byte, 32), Addrs: []string{"192.0.2.7:8771", "a.b:1", "[::1]:2"}}}}
	s, err := tok.Text()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s)
	f.Add(Prefix + "aaaaaaaa")
	f.Fuzz(func(t *testing.T, in string) {
		tok, err := Parse(in)
		if err != nil {
			return
		}
		again, err := tok.Text()
		if err != nil {
			t.Fatalf("parsed but does not encode: %v", err)
		}
		if again != strings.ToLower(strings.Join(strings.Fields(in), "")) {
			t.Fatalf("two texts for one token")
		}
	})
}

func FuzzUnmarshal(f *testing.F) {
	raw, err := Token{Seeds: []Seed{{Key: make([]byte, 32), Addrs: []string{"192.0.2.7:8771", "a.b:1", "[::1]:2"}}}}.marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, in []byte) {
		tok, err := unmarshal(in)
		if err != nil {
			return
		}
		again, err := tok.marshal()
		if err != nil || string(again) != string(in) {
			t.Fatalf("%x decodes and encodes as %x (%v)", in, again, err)
		}
	})
}

// FuzzAddress: what is encoded can be dialled, and has one form.
func FuzzAddress(f *testing.F) {
	for _, addr := range []string{"192.0.2.7:8771", "[2001:db8::7]:8771", "[::ffff:192.0.2.7]:1", "box.example:65535", "[fe80::1%eth0]:1", ":1", "a:0"} {
		f.Add(addr)
	}
	f.Fuzz(func(t *testing.T, addr string) {
		raw, err := appendAddr(nil, addr)
		if err != nil {
			return
		}
		r := &reader{rest: raw}
		got, ok := readAddr(r)
		if !ok || r.short || len(r.rest) > 0 {
			t.Fatalf("%q is encoded as %x, which is not read", addr, raw)
		}
		if again, err := appendAddr(nil, got); err != nil || string(again) != string(raw) {
			t.Fatalf("%q becomes %q, which is encoded as %x, not %x (%v)", addr, got, again, raw, err)
		}
	})
}
