package keys

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"io"
	"strings"
)

// A key is Prefix, then the row's key, then the secret, both in base32 of one
// case, so that a double click selects all of it.
const (
	Prefix      = "llmgw-sk-"
	idBytes     = 10 // 16 characters
	secretBytes = 32 // 52 characters
	idChars     = 16
	secretChars = 52
)

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// generate draws a key from entropy, which must be cryptographic.
func generate(entropy io.Reader) (text, id string, hash []byte, err error) {
	var raw [idBytes + secretBytes]byte
	if _, err := io.ReadFull(entropy, raw[:]); err != nil {
		return "", "", nil, fmt.Errorf("draw key: %w", err)
	}
	id = encoding.EncodeToString(raw[:idBytes])
	secret := encoding.EncodeToString(raw[idBytes:])
	return Prefix + id + secret, id, hashSecret(secret), nil
}

// split takes a key's text apart; false for any other text.
func split(text string) (id, secret string, ok bool) {
	rest, ok := strings.CutPrefix(text, Prefix)
	if !ok || len(rest) != idChars+secretChars {
		return "", "", false
	}
	for i := range len(rest) {
		if c := rest[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return "", "", false
		}
	}
	return rest[:idChars], rest[idChars:], true
}

// hashSecret needs no salt and no work factor: the secret is 256 random bits.
func hashSecret(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// Redact shortens a key so that it can be shown: the row's key alone.
func Redact(text string) string {
	if id, _, ok := split(text); ok {
		return Prefix + id + "..."
	}
	return "(no key of llmgw)"
}
