// Package token owns the text that a person carries from one box to another to
// join a mesh: its encoding, the key that its secret seeds, the transcript that
// a joiner signs with that key, and the typed errors of a join.
//
// A token is "llmgw1." followed by lower-case base32 of a versioned binary form
// and four check characters. It pins the mesh (by its ID) and the boxes that
// may redeem it (by their public keys), so that a joiner can tell the right
// mesh from another before it proves anything. Role, expiry and number of uses
// are not in it: they stand in the issuer's row of shared state, which holds
// only the public half of the token's key.
package token

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	// Prefix starts each token; the digit is the version of the text form.
	Prefix = "llmgw1."
	// name and textVersion are what it is made of.
	name        = "llmgw"
	textVersion = 1
	// version is the first byte of the binary form.
	version = 1
	// checkChars is the number of base32 characters that catch a mistyped
	// token: 20 bits let one error in a million through.
	checkChars = 4

	// maxSeeds and maxAddrs bound what a pasted text can make us dial.
	maxSeeds = 8
	maxAddrs = 8
	// maxText bounds a pasted text: eight boxes with eight DNS names of full length
	// each have 26.9 kB.
	maxText = 32 << 10
)

// SecretSize is the length of a token's secret in bytes.
const SecretSize = 16

// ID names a token in shared state and in logs. It is no secret.
type ID [8]byte

// String is the ID in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// ParseID reads the text form of an ID.
func ParseID(text string) (ID, error) {
	var id ID
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(id) {
		// The text is not repeated: it may be a whole token.
		return id, fmt.Errorf("parse token ID: want %d hexadecimal digits", 2*len(id))
	}
	copy(id[:], raw)
	return id, nil
}

// Seed is a box that can redeem the token: its identity and where to dial it.
type Seed struct {
	Key   ed25519.PublicKey
	Addrs []string // host:port, nearest first
}

// Token is the content of a join token.
type Token struct {
	Mesh   [32]byte // mesh ID
	ID     ID
	Secret [SecretSize]byte
	Seeds  []Seed
}

// New makes a token for a mesh with a fresh ID and secret.
func New(mesh [32]byte, seeds []Seed, entropy io.Reader) (Token, error) {
	t := Token{Mesh: mesh, Seeds: seeds}
	if _, err := io.ReadFull(entropy, t.ID[:]); err != nil {
		return Token{}, fmt.Errorf("make token ID: %w", err)
	}
	if _, err := io.ReadFull(entropy, t.Secret[:]); err != nil {
		return Token{}, fmt.Errorf("make token secret: %w", err)
	}
	return t, nil
}

// Key is the signing key that the token's secret seeds. Its public half stands
// in the token's row.
func (t Token) Key() ed25519.PrivateKey {
	seed, err := hkdf.Key(sha256.New, t.Secret[:], t.Mesh[:], "llmgw token key 1 "+t.ID.String(), ed25519.SeedSize)
	if err != nil {
		panic(err) // only a length beyond 255 hashes fails
	}
	return ed25519.NewKeyFromSeed(seed)
}

// String is a form without the secret: a token that ends up in a log by
// accident tells only its ID.
func (t Token) String() string { return "token " + t.ID.String() }

// Format is String for every verb: %#v and %x would show the secret.
func (t Token) Format(f fmt.State, _ rune) { io.WriteString(f, t.String()) }

// MarshalText is String for encoders and for slog.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Text is the form that a person carries. Whoever has it can join.
func (t Token) Text() (string, error) {
	raw, err := t.marshal()
	if err != nil {
		return "", err
	}
	return Prefix + encoding.EncodeToString(raw) + check(raw), nil
}

// Parse reads a token as a person pasted it: white space and capitals are
// forgiven, everything else must be right. The error is a *Error.
func Parse(text string) (Token, error) {
	text = strings.ToLower(strings.Join(strings.Fields(text), ""))
	switch {
	case text == "":
		return Token{}, mistyped("it is empty")
	case len(text) > maxText:
		return Token{}, mistyped("it is far too long")
	case !strings.HasPrefix(text, Prefix):
		return Token{}, otherForm(text)
	}
	body := strings.TrimPrefix(text, Prefix)
	if len(body) <= checkChars {
		return Token{}, mistyped(cutShort)
	}
	sum := body[len(body)-checkChars:]
	raw, err := encoding.DecodeString(body[:len(body)-checkChars])
	if err != nil {
		return Token{}, mistyped("it is cut short or holds a character that no token has")
	}
	if check(raw) != sum || encoding.EncodeToString(raw) != body[:len(body)-checkChars] {
		return Token{}, mistyped("its check characters do not match")
	}
	return unmarshal(raw)
}

// otherForm tells a token of a later llmgw from what is none.
func otherForm(text string) *Error {
	form, _, _ := strings.Cut(text, ".")
	digits, ok := strings.CutPrefix(form, name)
	if v, err := strconv.ParseUint(digits, 10, 16); ok && err == nil && v > textVersion {
		return &Error{Kind: Unsupported, Detail: fmt.Sprintf("the text of the token has version %d, this llmgw knows %d", v, textVersion)}
	}
	return mistyped("it does not start with " + Prefix)
}

func check(raw []byte) string {
	sum := sha256.Sum256(append([]byte("llmgw token check 1\x00"), raw...))
	return encoding.EncodeToString(sum[:])[:checkChars]
}
