package mesh

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt/store"
)

// With each place in its log that a box tells a peer goes a proof, which the peer keeps and shows when it says how far it
// has this log. Who claims a place that this box does not know to have given out is believed only with it: then the box did
// so in a past that its disk has lost, and takes a new identity. A member that makes up a place moves nobody.
//
// The key of the proofs comes from the box's identity, which lies beside the disk's copy of the log and not in it.

// proofs makes and checks them.
type proofs struct{ key []byte }

func newProofs(identity ed25519.PrivateKey) proofs {
	mac := hmac.New(sha256.New, identity)
	mac.Write([]byte("llmgw places in the log 1"))
	return proofs{mac.Sum(nil)}
}

// of is the proof that goes to p; to no other peer it is worth anything.
func (f proofs) of(p peer.ID, index, seq uint64) (proof [16]byte) {
	mac := hmac.New(sha256.New, f.key)
	mac.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, index), seq))
	mac.Write([]byte(p))
	copy(proof[:], mac.Sum(nil))
	return proof
}

// holds says whether this box gave p the place.
func (f proofs) holds(p peer.ID, c store.Cursor) bool {
	want := f.of(p, c.IndexID, c.Seq)
	return hmac.Equal(want[:], c.Proof[:])
}
