package mesh

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
)

const (
	// compareFrom is how many changes a box has seen from which on it compares digests
	// before it pulls from a peer for the first time: below that all rows are less than
	// the digest.
	compareFrom = 200
	// firstWithin bounds the comparison. Without one everything is pulled.
	firstWithin = 10 * time.Second
	// maxHas bounds the rows that are named as known already, to what fits into a frame.
	maxHas = 80_000
)

// compareFirst finds out, before the first pull from a peer, or from its new log, what
// there is to fetch: mostly nothing, since both have it from others. Nil: everything.
func (m *Mesh) compareFirst(p peer.ID) *syncKnown {
	if m.store.Sequence() < compareFrom {
		return nil
	}
	ctx, cancel := context.WithTimeout(m.life, firstWithin)
	defer cancel()
	known, err := m.knownTo(ctx, p)
	if err != nil {
		m.log.Debug("everything is pulled, without a comparison", "peer", p.String(), "err", err)
		return nil
	}
	return known
}

func (m *Mesh) knownTo(ctx context.Context, p peer.ID) (*syncKnown, error) {
	answer, err := m.askDigest(ctx, p, syncAsk{Kind: askDigest})
	if err != nil {
		return nil, err
	}
	theirs, err := crdt.DecodeDigest(answer.Digest)
	if err != nil {
		return nil, err
	}
	has, err := m.store.KnownBeside(&theirs, answer.Seq, maxHas)
	if err != nil {
		return nil, err
	}
	return &syncKnown{
		Index: answer.Index, Until: answer.Seq,
		Buckets: slices.Sorted(maps.Keys(has.Differs)), Has: slices.Collect(maps.Keys(has.Has)),
	}, nil
}
