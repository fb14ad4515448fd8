package mesh

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/mesh/token"
)

const (
	// auditPause collects the rows of one sync before tokens are counted.
	auditPause = 500 * time.Millisecond
	// auditEach repeats it: who has to act may have been away.
	auditEach = time.Minute
)

// Redemption is one use of a token, as the signed member records tell it.
type Redemption struct {
	Peer string
	Name string    // label of the box, when known
	By   string    // peer ID of the admin that admitted it
	At   time.Time // by that admin's hybrid clock
	// Excess: the token had no use left; only found when two sides of a cut met.
	Excess bool
}

// redemption is a use with the record that it led to.
type redemption struct {
	rec    *signedRecord
	excess bool
}

// redemptions lists the uses of a token, the earliest first. Those beyond its uses are
// in excess: the same ones on every box. Two records of one join, which a joiner
// gets when an answer is lost, are one use.
func (r *roster) redemptions(id token.ID, uses int) []redemption {
	type join struct {
		peer   peer.ID
		serial uint64
	}
	first := map[join]*signedRecord{}
	for rec := range r.parents {
		if !bytes.Equal(rec.body.Token, id[:]) {
			continue
		}
		k := join{rec.peer, rec.body.Serial}
		if had, ok := first[k]; !ok || earlier(rec, had) < 0 {
			first[k] = rec
		}
	}
	var out []redemption
	for _, rec := range first {
		out = append(out, redemption{rec: rec})
	}
	slices.SortFunc(out, func(a, b redemption) int { return earlier(a.rec, b.rec) })
	for i := range out {
		out[i].excess = i >= uses
	}
	return out
}

func earlier(a, b *signedRecord) int {
	return cmp.Or(cmp.Compare(a.body.At, b.body.At), cmp.Compare(a.peer, b.peer), bytes.Compare(a.hash[:], b.hash[:]))
}

// audited is the uses of a token for display.
func (r *roster) audited(id token.ID, uses int) []Redemption {
	var out []Redemption
	for _, use := range r.redemptions(id, uses) {
		out = append(out, Redemption{
			Peer: use.rec.body.Peer, Name: r.names[use.rec.peer], By: use.rec.body.Issuer, At: use.rec.body.At.Time(), Excess: use.excess,
		})
	}
	return out
}

// runAudit counts the uses of tokens whenever rows came.
func (m *Mesh) runAudit(ctx context.Context) {
	rows := m.store.Watch(nsMembers, nsTokens)
	defer rows.Close()
	again := time.NewTicker(auditEach)
	defer again.Stop()
	for {
		m.auditTokens(ctx)
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			m.tidyTokens()
		case <-rows.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(auditPause):
		}
	}
}

// auditTokens finds tokens that were used more often than they allow: two sides of
// a cut could each take the last use. The later joiner has to go.
func (m *Mesh) auditTokens(ctx context.Context) {
	v := m.view.Load()
	items, err := m.store.List(nsTokens)
	if err != nil {
		m.log.Error("tokens not audited", "err", err)
		return
	}
	for _, item := range items {
		id, err := tokenKeyID(item.Key)
		if err != nil {
			continue
		}
		body, err := checkToken(v, id, item.Row)
		if err != nil {
			continue
		}
		for _, use := range v.roster.redemptions(id, body.Uses) {
			if use.excess {
				m.overused(ctx, v, id, use.rec)
			}
		}
	}
}

func (m *Mesh) overused(ctx context.Context, v *view, id token.ID, rec *signedRecord) {
	name := m.nameOf(rec.body.Peer)
	m.events.note(m.now(), rec.body.Peer, Alarm{
		Kind: AlarmToken, Text: fmt.Sprintf("join token %s was used more often than it allows, by boxes that could not know of each other; %s came last and is removed", id, name),
		Fix: "if that box belongs here, unban it and give it a new token",
	})
	now, ok := v.roster.members[rec.peer]
	if !ok || now.standing != active || now.signed.admission() != rec.body.Serial || !m.actsFor(v.roster, rec.peer) {
		return
	}
	if err := m.Ban(ctx, rec.body.Peer, "join token "+id.String()+" had been used before"); err != nil {
		m.log.Error("box that used a spent token not removed", "peer", rec.body.Peer, "err", err)
	}
}

// actsFor says whether this box is the admin that acts where one has to: of those
// alive the one with the lowest peer ID. Two that disagree on who is alive both
// act, which does no harm.
func (m *Mesh) actsFor(r *roster, subject peer.ID) bool {
	self, ok := r.members[m.self]
	if !ok || !self.admin() || !r.active(m.self) || m.self == subject {
		return false
	}
	for _, p := range m.links.live() {
		if other, ok := r.members[p]; ok && other.admin() && p != subject && p < m.self {
			return false
		}
	}
	return true
}
