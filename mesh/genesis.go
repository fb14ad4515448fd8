package mesh

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"io"

	"github.com/libp2p/go-libp2p/core/peer"
)

// genesisVersion is the version of the genesis record.
const genesisVersion = 1

// MinSecret is the shortest mesh secret that is taken, in bytes: whoever guesses
// it is a member.
const MinSecret = 16

// meshID names a mesh: the hash of its genesis record.
type meshID [32]byte

// String is the ID in lower-case base32.
func (id meshID) String() string {
	return base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding).EncodeToString(id[:])
}

// tag is a short form for topic names. Two meshes with one tag would only hear
// messages that they cannot use.
func (id meshID) tag() string { return id.String()[:16] }

// hint tells a box that knows the mesh ID that p belongs to the same mesh, and
// tells everybody else nothing.
func (id meshID) hint(p peer.ID) [8]byte {
	mac := hmac.New(sha256.New, id[:])
	mac.Write([]byte("llmgw mdns hint 1\x00" + string(p)))
	return [8]byte(mac.Sum(nil)[:8])
}

// dhtPrefix names the members' table. A guest sees the names of protocols, and learns
// nothing of the mesh from this one.
func (id meshID) dhtPrefix() string {
	mac := hmac.New(sha256.New, id[:])
	mac.Write([]byte("llmgw dht 1"))
	return fmt.Sprintf("/llmgw/dht/%x", mac.Sum(nil)[:8])
}

// genesisRecord is the root of a mesh. It has no time and no nonce, so that
// every holder of a secret derives the same one.
type genesisRecord struct {
	_       struct{} `cbor:",toarray"`
	Version int
	Key     []byte // ed25519 public key
}

func encodeGenesis(key ed25519.PublicKey) ([]byte, error) {
	raw, err := marshal(genesisRecord{Version: genesisVersion, Key: key})
	if err != nil {
		return nil, fmt.Errorf("encode genesis: %w", err)
	}
	return raw, nil
}

// genesisKey checks a genesis record against the mesh that it must root.
func genesisKey(mesh meshID, raw []byte) (ed25519.PublicKey, error) {
	if hashGenesis(raw) != mesh {
		return nil, fmt.Errorf("genesis record is of another mesh")
	}
	var rec genesisRecord
	if err := unmarshal(raw, &rec); err != nil {
		return nil, fmt.Errorf("decode genesis: %w", err)
	}
	if rec.Version != genesisVersion || len(rec.Key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("genesis record of version %d with a key of %d bytes", rec.Version, len(rec.Key))
	}
	return rec.Key, nil
}

func hashGenesis(raw []byte) meshID {
	return sha256.Sum256(append([]byte("llmgw genesis 1\x00"), raw...))
}

// root is the signing half of a genesis: discarded after the founder is signed,
// or derived again from the secret.
type root struct {
	mesh    meshID
	record  []byte
	private ed25519.PrivateKey
}

func newRoot(private ed25519.PrivateKey) (root, error) {
	record, err := encodeGenesis(private.Public().(ed25519.PublicKey))
	if err != nil {
		return root{}, err
	}
	return root{mesh: hashGenesis(record), record: record, private: private}, nil
}

// randomRoot makes the genesis of a mesh that goes by tokens.
func randomRoot(entropy io.Reader) (root, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(entropy, seed); err != nil {
		return root{}, fmt.Errorf("make genesis key: %w", err)
	}
	return newRoot(ed25519.NewKeyFromSeed(seed))
}

// secretRoot derives the genesis that all holders of the secret share.
func secretRoot(secret []byte) (root, error) {
	if len(secret) < MinSecret {
		return root{}, fmt.Errorf("mesh secret of %d bytes: want at least %d random ones", len(secret), MinSecret)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, "llmgw genesis key 1", ed25519.SeedSize)
	if err != nil {
		return root{}, fmt.Errorf("derive genesis key: %w", err)
	}
	return newRoot(ed25519.NewKeyFromSeed(seed))
}
