package mesh

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

const (
	// compareLeast and compareMost: a random peer's digest is compared this often.
	compareLeast, compareMost = 5 * time.Minute, 10 * time.Minute
	// compareTries compare again after pulls both ways: rows written meanwhile are no
	// difference.
	compareTries = 3
	comparePause = 2 * time.Second
	// compareWait bounds one comparison.
	compareWait = 2 * time.Minute
	// maxRepair bounds the rows that one comparison asks for; the next goes on.
	maxRepair = 5000
	// rowsAtOnce is how many of them one question names.
	rowsAtOnce = 500
)

// digestAnswer is the one frame that answers a question about the digest.
type digestAnswer struct {
	Digest  []byte `cbor:"1,keyasint,omitempty"` // crdt.Digest
	Entries []byte `cbor:"2,keyasint,omitempty"` // crdt.EncodeEntries
	Items   []byte `cbor:"3,keyasint,omitempty"` // crdt.EncodeItems
	// Index and Seq are the log that the digest sums up, as far as it was at least.
	Index uint64 `cbor:"4,keyasint,omitempty"`
	Seq   uint64 `cbor:"5,keyasint,omitempty"`
}

// runCompare checks from time to time that gossip and pulls did what they should:
// two boxes that pulled from each other hold the same rows. A difference is a fault
// of llmgw, so it is an alarm besides being repaired.
func (m *Mesh) runCompare(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(compareLeast + rand.N(compareMost-compareLeast)):
		}
		live := m.links.live()
		if len(live) == 0 {
			continue
		}
		p := live[rand.N(len(live))]
		if _, err := m.compare(ctx, p); err != nil && ctx.Err() == nil {
			m.log.Debug("digests not compared", "peer", p.String(), "err", err)
		}
	}
}

// compare returns how many rows of p were fetched although pulls had missed them.
func (m *Mesh) compare(ctx context.Context, p peer.ID) (repaired int, err error) {
	ctx, cancel := context.WithTimeout(ctx, compareWait)
	defer cancel()
	m.money.forget(p) // the pulls that follow compare all counts
	var buckets []int
	for try := range compareTries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(comparePause):
			}
		}
		if buckets, err = m.differing(ctx, p); err != nil || len(buckets) == 0 {
			m.counts.compared(err, false)
			return 0, err
		}
	}
	repaired, err = m.repair(ctx, p, buckets)
	m.counts.compared(err, true)
	m.log.Error("stores differ after a pull both ways; what was missing was fetched", "peer", p.String(), "buckets", len(buckets), "rows", repaired)
	m.events.note(m.now(), p.String(), Alarm{
		Kind: AlarmDigest, Text: fmt.Sprintf("this box and %s did not hold the same rows after they had pulled from each other; %d were fetched", m.nameOf(p.String()), repaired),
		Fix: "report it with the logs of both boxes: this should not happen",
	})
	return repaired, err
}

// differing pulls both ways and compares.
func (m *Mesh) differing(ctx context.Context, p peer.ID) ([]int, error) {
	if err := m.pull(ctx, p); err != nil {
		return nil, err
	}
	if err := m.offerTo(ctx, p); err != nil {
		return nil, err
	}
	answer, err := m.askDigest(ctx, p, syncAsk{Kind: askDigest})
	if err != nil {
		return nil, err
	}
	theirs, err := crdt.DecodeDigest(answer.Digest)
	if err != nil {
		return nil, err
	}
	ours := m.store.Digest()
	return ours.Diff(&theirs), nil
}

// repair fetches the rows of p that differ. What only this box has p repairs by
// its own comparison.
func (m *Mesh) repair(ctx context.Context, p peer.ID, buckets []int) (int, error) {
	v := m.view.Load()
	answer, err := m.askDigest(ctx, p, syncAsk{Kind: askBuckets, Buckets: buckets})
	if err != nil {
		return 0, err
	}
	theirs, err := crdt.DecodeEntries(answer.Entries)
	if err != nil {
		return 0, err
	}
	theirs = theirs[:min(len(theirs), maxRepair)]
	missing, err := m.unlike(theirs, buckets)
	if err != nil {
		return 0, err
	}
	repaired, err := m.fetchRows(ctx, p, v.generation, missing)
	if err != nil || repaired == 0 {
		return repaired, err
	}
	// Of a row that is too large for a frame only the first part came; a pull from the
	// beginning brings all of them.
	if left, err := m.unlike(theirs, buckets); err != nil || len(left) == 0 {
		return repaired, err
	}
	if err := m.store.SetCursor(p.String(), store.Cursor{}); err != nil {
		return repaired, fmt.Errorf("forget cursor: %w", err)
	}
	return repaired, m.pull(ctx, p)
}

// unlike lists the keys of rows that this box does not have as the peer does.
func (m *Mesh) unlike(theirs []crdt.DigestEntry, buckets []int) (keys [][]byte, err error) {
	own, err := m.store.Buckets(buckets)
	if err != nil {
		return nil, fmt.Errorf("read buckets: %w", err)
	}
	have := map[crdt.Key]crdt.Fingerprint{}
	for _, e := range own {
		have[e.Key] = e.Hash
	}
	for _, e := range theirs {
		if have[e.Key] != e.Hash {
			keys = append(keys, []byte(e.Key))
		}
	}
	return keys, nil
}

// fetchRows asks for rows until all came that p still has.
func (m *Mesh) fetchRows(ctx context.Context, p peer.ID, generation uint64, missing [][]byte) (fetched int, err error) {
	for len(missing) > 0 {
		answer, err := m.askDigest(ctx, p, syncAsk{Kind: askRows, Rows: missing[:min(len(missing), rowsAtOnce)]})
		if err != nil {
			return fetched, err
		}
		items, err := crdt.DecodeItems(answer.Items)
		if err != nil {
			return fetched, fmt.Errorf("decode rows: %w: %w", errFrame, err)
		}
		got := map[crdt.Key]bool{}
		for _, item := range items {
			got[item.Key] = true
		}
		before := len(missing)
		missing = slices.DeleteFunc(missing, func(k []byte) bool { return got[crdt.Key(k)] })
		if len(missing) == before {
			return fetched, nil // what is left was deleted meanwhile
		}
		if _, err := m.merge(generation, items); err != nil {
			return fetched, err
		}
		fetched += before - len(missing)
	}
	return fetched, nil
}

func (m *Mesh) askDigest(ctx context.Context, p peer.ID, ask syncAsk) (digestAnswer, error) {
	var answer digestAnswer
	v := m.view.Load()
	ask.Mesh = v.mesh[:]
	s, err := m.open(ctx, p, protocolSync)
	if err != nil {
		return answer, err
	}
	stop := context.AfterFunc(ctx, func() { s.Reset() })
	defer stop()
	if err = m.writeSync(s, ask); err == nil {
		err = m.readSync(s, &answer)
	}
	if err != nil {
		s.Reset()
		m.warden.blame(p, err)
		return answer, fmt.Errorf("compare with %s: %w", p, err)
	}
	return answer, s.Close()
}

// answerDigest answers one question about the digest.
func (m *Mesh) answerDigest(s *stream, ask syncAsk) (err error) {
	if v := m.view.Load(); string(ask.Mesh) != string(v.mesh[:]) {
		return errMeshReplaced
	}
	var answer digestAnswer
	switch ask.Kind {
	case askDigest:
		digest, until := m.store.DigestUntil()
		answer.Digest, answer.Index, answer.Seq = digest.Encode(), until.IndexID, until.Seq
	case askBuckets:
		var entries []crdt.DigestEntry
		if entries, err = m.store.Buckets(ask.Buckets); err == nil {
			answer.Entries, err = crdt.EncodeEntries(entries[:min(len(entries), maxRepair)])
		}
	case askRows:
		answer.Items, err = m.encodeRows(ask.Rows)
	}
	if err != nil {
		return fmt.Errorf("answer digest: %w", err)
	}
	return m.writeSync(s, answer)
}

// encodeRows takes as many of the rows as fit into a frame; the asker asks again.
func (m *Mesh) encodeRows(names [][]byte) ([]byte, error) {
	var keys []crdt.Key
	for _, k := range names[:min(len(names), rowsAtOnce)] {
		keys = append(keys, crdt.Key(k))
	}
	items, err := m.store.Items(keys)
	if err != nil {
		return nil, err
	}
	if parts := crdt.Pack(items, maxSync/2); len(parts) > 0 {
		items = parts[0]
	}
	return crdt.EncodeItems(items)
}

// digestKey is the same on all members, and known to nobody else.
func (id meshID) digestKey() crdt.DigestKey {
	mac := hmac.New(sha256.New, id[:])
	mac.Write([]byte("llmgw digest key 1"))
	return crdt.DigestKey(mac.Sum(nil))
}

// keyDigest has the store sum up its rows under the key of the mesh.
func (m *Mesh) keyDigest(v *view) {
	if err := m.store.SetDigestKey(v.mesh.digestKey()); err != nil {
		m.log.Error("digest not kept; differences to other boxes would stay unseen", "err", err)
	}
}
