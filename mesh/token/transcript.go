package token

import (
	"crypto/ed25519"
	"encoding/binary"
)

// Transcript is what a joiner proves knowledge of the token over. Both peer IDs
// and both nonces are in it, so that neither a hostile box nor a listener can
// use the proof with anybody else or again.
type Transcript struct {
	Mesh        [32]byte
	Token       ID
	Joiner      string // peer ID
	Issuer      string // peer ID of the box that answered
	JoinerNonce [32]byte
	IssuerNonce [32]byte
}

// Sign proves that the signer holds the token whose key is given.
func (t Transcript) Sign(key ed25519.PrivateKey) []byte {
	return ed25519.Sign(key, t.bytes())
}

// Verify checks a proof against the public key of the token's row.
func (t Transcript) Verify(key ed25519.PublicKey, proof []byte) bool {
	return len(key) == ed25519.PublicKeySize && ed25519.Verify(key, t.bytes(), proof)
}

func (t Transcript) bytes() []byte {
	b := []byte("llmgw join transcript 1\x00")
	for _, part := range [][]byte{t.Mesh[:], t.Token[:], []byte(t.Joiner), []byte(t.Issuer), t.JoinerNonce[:], t.IssuerNonce[:]} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	return b
}
