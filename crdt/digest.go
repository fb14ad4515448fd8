package crdt

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// DigestBuckets is the number of buckets of a Digest. Flat buckets serve about 10^5 rows: two stores that differ in one
// row then exchange about a hundred fingerprints to find it.
const DigestBuckets = 1024

// digestBytes is the length of an encoded digest: a version byte and the buckets.
const digestBytes = 1 + DigestBuckets*len(Fingerprint{})

// DigestKey makes fingerprints of one mesh worthless in another, and collisions not to be had by choosing rows
// without knowing it. All members use the same.
type DigestKey [32]byte

// Fingerprint is a 128-bit keyed hash of a key and the canonical encoding of its row.
type Fingerprint [16]byte

// Digest sums up a set of present rows: each bucket is the XOR of the fingerprints of the rows that fall into it, so that
// neither the order of changes nor their history matters. Tombstones are left out: stores drop them at different times.
type Digest [DigestBuckets]Fingerprint

// DigestEntry is one row in the listing of a bucket.
type DigestEntry struct {
	Key  Key
	Hash Fingerprint
}

// Fingerprint hashes a row given by its canonical encoding, see EncodeRow.
func (k DigestKey) Fingerprint(key Key, row []byte) Fingerprint {
	var few [512]byte // most rows are shorter, and need no memory of their own
	buf := binary.AppendUvarint(append(few[:0], k[:]...), uint64(len(key)))
	sum := sha256.Sum256(append(append(buf, key...), row...))
	// The sum is cut in half, so that a longer row cannot be computed from it.
	return Fingerprint(sum[:len(Fingerprint{})])
}

// Short is enough of a fingerprint to tell some hundred thousand rows apart.
func (f Fingerprint) Short() uint64 { return binary.BigEndian.Uint64(f[:]) }

// Bucket says into which bucket a key falls, whatever its row.
func (k DigestKey) Bucket(key Key) int {
	var few [256]byte
	sum := sha256.Sum256(append(append(few[:0], k[:]...), key...))
	return int(binary.BigEndian.Uint16(sum[:])) % DigestBuckets
}

// Toggle adds a fingerprint to a bucket, or takes it out again.
func (d *Digest) Toggle(bucket int, f Fingerprint) {
	for i := range f {
		d[bucket][i] ^= f[i]
	}
}

// Diff returns the buckets in which two digests under the same key differ.
func (d *Digest) Diff(o *Digest) []int {
	var buckets []int
	for i := range d {
		if d[i] != o[i] {
			buckets = append(buckets, i)
		}
	}
	return buckets
}

// Encode gives the digest as a version byte and the buckets in order, 16 KiB.
func (d *Digest) Encode() []byte {
	data := make([]byte, 1, digestBytes)
	data[0] = encodingVersion
	for i := range d {
		data = append(data, d[i][:]...)
	}
	return data
}

// DecodeDigest reads an encoded digest. Errors are ErrVersion and ErrMalformed.
func DecodeDigest(data []byte) (Digest, error) {
	if len(data) > 0 && data[0] != encodingVersion {
		return Digest{}, fmt.Errorf("decode digest: version %d: %w", data[0], ErrVersion)
	}
	if len(data) != digestBytes {
		return Digest{}, fmt.Errorf("decode digest: %d bytes: %w", len(data), ErrMalformed)
	}
	var d Digest
	for i := range d {
		copy(d[i][:], data[1+i*len(d[i]):])
	}
	return d, nil
}

type wireEntry struct {
	_    struct{} `cbor:",toarray"`
	Key  []byte
	Hash []byte
}

// EncodeEntries encodes the listing of buckets in the order given.
func EncodeEntries(entries []DigestEntry) ([]byte, error) {
	return encodeAll(entries, func(e DigestEntry) (wireEntry, error) {
		return wireEntry{Key: []byte(e.Key), Hash: e.Hash[:]}, e.Key.Validate()
	})
}

// DecodeEntries reads a listing from outside: bounded as a message of DecodeItems is, in canonical form only.
func DecodeEntries(data []byte) ([]DigestEntry, error) {
	return decodeAll(data, func(w wireEntry) (DigestEntry, error) {
		e := DigestEntry{Key: Key(w.Key)}
		if len(w.Hash) != len(e.Hash) {
			return e, fmt.Errorf("hash of %d bytes: %w", len(w.Hash), ErrMalformed)
		}
		copy(e.Hash[:], w.Hash)
		return e, e.Key.Validate()
	})
}

// DiffEntries returns the keys, in order, whose rows differ between two listings or are in only one of them. Both sides
// send each other the rows of these keys; merging them repairs the difference.
func DiffEntries(a, b []DigestEntry) []Key {
	hashes := make(map[Key]Fingerprint, len(a))
	for _, e := range a {
		hashes[e.Key] = e.Hash
	}
	var keys []Key
	for _, e := range b {
		if had, ok := hashes[e.Key]; !ok || had != e.Hash {
			keys = append(keys, e.Key)
		}
		delete(hashes, e.Key)
	}
	for key := range hashes {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
