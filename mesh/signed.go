package mesh

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
)

// Kinds of signed blobs. The kind is part of what is signed, so that no blob
// passes for another.
const (
	kindMember = "member"
	kindLeft   = "left"
	kindRuling = "ruling"
	kindToken  = "token"
)

// errSignature: a signed blob does not hold.
var errSignature = errors.New("signature does not hold")

// Role says what a member may do to membership. All else is open to both.
type Role string

// Roles. Boxes are equals, so admin is what a token gives unless asked otherwise.
const (
	RoleAdmin  Role = "admin" // may admit, ban and make tokens
	RoleMember Role = "member"
)

// envelope is a signed blob. Body is kept and checked as exact bytes.
type envelope struct {
	_    struct{} `cbor:",toarray"`
	Body []byte
	Sig  []byte
}

// memberBody is the record that makes a peer a member.
type memberBody struct {
	Mesh   []byte `cbor:"1,keyasint"`
	Peer   string `cbor:"2,keyasint"`
	Role   Role   `cbor:"3,keyasint"`
	Serial uint64 `cbor:"4,keyasint"` // the highest stands; also the stamp of its cell
	Issuer string `cbor:"5,keyasint"` // peer ID; empty: the genesis key
	Joined int64  `cbor:"6,keyasint"` // unix seconds by the issuer's clock, for display
	// Genesis is the genesis record when its key signed: the chain's end carries
	// its own proof.
	Genesis []byte `cbor:"7,keyasint,omitempty"`
	// IssuerSerial is the issuer's own record by which it was an admin.
	IssuerSerial uint64 `cbor:"8,keyasint,omitempty"`
	// Admission is the serial of the record by which the peer came in; 0: this one.
	// A promotion carries it on, so that it does not bring back one who left.
	Admission uint64   `cbor:"9,keyasint,omitempty"`
	Token     []byte   `cbor:"10,keyasint,omitempty"` // ID of the token that was redeemed
	At        crdt.HLC `cbor:"11,keyasint,omitempty"` // when it was signed, by the issuer
}

// leftBody is a member's own word that it left. It ends the record with its
// serial and those before.
type leftBody struct {
	Mesh   []byte `cbor:"1,keyasint"`
	Peer   string `cbor:"2,keyasint"`
	Serial uint64 `cbor:"3,keyasint"`
	At     int64  `cbor:"4,keyasint"`
}

// Kinds of rulings.
const (
	rulingBan    = "ban"    // the peer is no member, and what it signed counts no more
	rulingDemote = "demote" // the peer stays, and what it signed counts no more
	rulingPardon = "pardon" // a banned peer may be admitted anew; nothing of old comes back
)

// maxStamp keeps room above every stamp that is taken.
const maxStamp crdt.HLC = 1 << 62

// rulingBody is an admin's word about a peer.
type rulingBody struct {
	Mesh   []byte `cbor:"1,keyasint"`
	Peer   string `cbor:"2,keyasint"`
	Serial uint64 `cbor:"3,keyasint"` // above all that the issuer knew of the peer; also the stamp of its cell
	Kind   string `cbor:"4,keyasint"`
	Issuer string `cbor:"5,keyasint"`
	// IssuerSerial is the issuer's own record by which it was an admin.
	IssuerSerial uint64   `cbor:"6,keyasint"`
	At           crdt.HLC `cbor:"7,keyasint"` // above the stamps of all rulings that the issuer knew
	Reason       string   `cbor:"8,keyasint,omitempty"`
	// Keeps are the records that only the peer had vouched for and for which the
	// issuer does so by this: they hold as if it had signed them.
	Keeps []keep `cbor:"9,keyasint,omitempty"`
}

// keep names one record.
type keep struct {
	_      struct{} `cbor:",toarray"`
	Peer   string
	Serial uint64
	Hash   []byte // SHA-256 of the signed blob
}

// tokenBody is a join token as shared state knows it: no secret in it.
type tokenBody struct {
	Mesh    []byte `cbor:"1,keyasint"`
	ID      []byte `cbor:"2,keyasint"`
	Key     []byte `cbor:"3,keyasint"` // public half of the key that the secret seeds
	Role    Role   `cbor:"4,keyasint"`
	Created int64  `cbor:"5,keyasint"` // unix seconds by the issuer's clock
	Expires int64  `cbor:"6,keyasint"` // the same
	Uses    int    `cbor:"7,keyasint"`
	Issuer  string `cbor:"8,keyasint"`
}

func signedBytes(kind string, body []byte) []byte {
	return append([]byte("llmgw signed 1\x00"+kind+"\x00"), body...)
}

// sign makes the blob of a body.
func sign(kind string, body any, key ed25519.PrivateKey) ([]byte, error) {
	raw, err := marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	blob, err := marshal(envelope{Body: raw, Sig: ed25519.Sign(key, signedBytes(kind, raw))})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	return blob, nil
}

// openBlob decodes a blob into body without checking the signature; the caller
// learns from the body whose it must be.
func openBlob(kind string, blob []byte, body any) (envelope, error) {
	var env envelope
	if err := unmarshal(blob, &env); err != nil {
		return env, fmt.Errorf("decode %s: %w", kind, err)
	}
	if err := unmarshal(env.Body, body); err != nil {
		return env, fmt.Errorf("decode %s: %w", kind, err)
	}
	return env, nil
}

func (e envelope) check(kind string, key ed25519.PublicKey) error {
	if !ed25519.Verify(key, signedBytes(kind, e.Body), e.Sig) {
		return fmt.Errorf("check %s: %w", kind, errSignature)
	}
	return nil
}

// peerKey is the public key inside of a peer ID.
func peerKey(text string) (peer.ID, ed25519.PublicKey, error) {
	id, err := peer.Decode(text)
	if err != nil {
		return "", nil, fmt.Errorf("decode peer ID: %w", err)
	}
	if id.String() != text {
		return "", nil, fmt.Errorf("peer ID %q is not in its usual form", text)
	}
	pub, err := id.ExtractPublicKey()
	if err != nil {
		return "", nil, fmt.Errorf("read key of peer %s: %w", text, err)
	}
	if pub.Type() != crypto.Ed25519 {
		return "", nil, fmt.Errorf("key of peer %s is not ed25519", text)
	}
	raw, err := pub.Raw()
	if err != nil {
		return "", nil, fmt.Errorf("read key of peer %s: %w", text, err)
	}
	return id, raw, nil
}
