package token

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

// fixed is a token that is the same in each run, so that a test of all its typos
// either finds one that passes or never does.
func fixed(t testing.TB, addrs ...string) Token {
	t.Helper()
	if len(addrs) == 0 {
		addrs = []string{"192.0.2.7:8771", "[2001:db8::7]:8771", "box-7.example:8771"}
	}
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{3}, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	entropy := make([]byte, len(ID{})+SecretSize)
	for i := range entropy {
		entropy[i] = byte(0xA0 + i)
	}
	tok, err := New([32]byte{1, 2, 3}, []Seed{{Key: key, Addrs: addrs}}, bytes.NewReader(entropy))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// framed is the text of a binary form, with check characters that match.
func framed(raw []byte) string { return Prefix + encoding.EncodeToString(raw) + check(raw) }

// raw is the binary form of a token.
func raw(t testing.TB, tok Token) []byte {
	t.Helper()
	b, err := tok.marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// refusedAs checks kind and words of a refusal, and that no part of the token is in it.
func refusedAs(t *testing.T, in string, kind Kind, words string) {
	t.Helper()
	_, err := Parse(in)
	if !errors.Is(err, &Error{Kind: kind}) || err.Error() != words {
		t.Errorf("got %v, want %q", err, words)
	}
}

// headSize is what stands before the boxes: version, mesh, ID, secret and their number.
const headSize = 1 + 32 + 8 + SecretSize + 1

// withSeed is the binary form of a token of one box whose bytes after the key are given.
func withSeed(t testing.TB, after ...byte) []byte {
	t.Helper()
	head := bytes.Clone(raw(t, fixed(t))[:headSize+ed25519.PublicKeySize])
	return append(head, after...)
}

func longName(n int) string { return strings.Repeat("a", n) }

// full is the longest token there can be.
func full(t testing.TB) Token {
	t.Helper()
	tok := fixed(t)
	seed := Seed{Key: tok.Seeds[0].Key}
	for i := range maxAddrs {
		seed.Addrs = append(seed.Addrs, net.JoinHostPort(longName(maxName-2)+fmt.Sprintf("-%d", i), "65535"))
	}
	tok.Seeds = nil
	for range maxSeeds {
		tok.Seeds = append(tok.Seeds, seed)
	}
	return tok
}
