package mesh

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"
)

// court finds out which rulings stand. Rulings are taken in the order of their
// hybrid stamps, ties by the peer IDs of issuer and subject: one stands if its
// issuer was an admin by those before it, and if an active admin is left after
// it. So of two admins who ban each other the earlier ban stands on every box, and
// no mesh is ever without an admin by rulings.
type court struct {
	entries map[peer.ID]*entry
	// signedBy lists records by the term that their issuers name.
	signedBy map[term][]*signedRecord
	byHash   map[[32]byte][]*signedRecord
	accepted []*ruling // in order
	void     []*ruling
}

// verdicts is what a list of rulings makes of the records.
type verdicts struct {
	out    map[peer.ID]uint64 // records below this serial make nobody a member
	weak   map[peer.ID]uint64 // records below this one make nobody an admin
	banned map[peer.ID]*ruling
	// valid holds the records that reach the genesis, each with the one by which it
	// does; nil under the genesis, and for one that a ruling keeps.
	valid map[*signedRecord]*signedRecord
}

func newCourt(entries map[peer.ID]*entry) *court {
	c := &court{entries: entries, signedBy: map[term][]*signedRecord{}, byHash: map[[32]byte][]*signedRecord{}}
	for _, e := range entries {
		for _, rec := range e.records {
			c.byHash[rec.hash] = append(c.byHash[rec.hash], rec)
			if rec.issuer != "" {
				by := term{rec.issuer, rec.body.IssuerSerial}
				c.signedBy[by] = append(c.signedBy[by], rec)
			}
		}
	}
	return c
}

// judge fills accepted and void, and returns what the accepted ones lead to.
func (c *court) judge(v verdicts) verdicts {
	for _, r := range c.docket() {
		if !c.inOffice(v, term{r.issuer, r.body.IssuerSerial}) {
			c.void = append(c.void, r)
			continue
		}
		next := c.settle(append(slices.Clone(c.accepted), r))
		if !c.hasAdmin(next) {
			c.void = append(c.void, r)
			continue
		}
		c.accepted, v = append(c.accepted, r), next
	}
	return v
}

func (c *court) docket() []*ruling {
	var all []*ruling
	for _, e := range c.entries {
		all = append(all, e.rulings...)
	}
	slices.SortFunc(all, func(a, b *ruling) int {
		return cmp.Or(cmp.Compare(a.body.At, b.body.At), cmp.Compare(a.issuer, b.issuer), cmp.Compare(a.peer, b.peer),
			bytes.Compare(a.hash[:], b.hash[:]))
	})
	return all
}

// settle says which records hold under the rulings, taken in order.
func (c *court) settle(rulings []*ruling) verdicts {
	v := verdicts{
		out: map[peer.ID]uint64{}, weak: map[peer.ID]uint64{}, banned: map[peer.ID]*ruling{},
		valid: map[*signedRecord]*signedRecord{},
	}
	for _, r := range rulings {
		v.apply(r)
	}
	var grown []*signedRecord
	hold := func(rec, by *signedRecord) {
		if _, known := v.valid[rec]; !known && v.mayHold(rec) {
			v.valid[rec] = by
			grown = append(grown, rec)
		}
	}
	for _, e := range c.entries {
		for _, rec := range e.records {
			if rec.issuer == "" {
				hold(rec, nil) // the signature was checked when the record was read
			}
		}
	}
	for i, r := range rulings {
		if !overruled(r, rulings[i+1:]) {
			for hash := range r.keeps {
				for _, rec := range c.byHash[hash] {
					hold(rec, nil)
				}
			}
		}
	}
	for len(grown) > 0 {
		by := grown[0]
		grown = grown[1:]
		if v.powerful(by) {
			for _, rec := range c.signedBy[term{by.peer, by.body.Serial}] {
				hold(rec, by)
			}
		}
	}
	return v
}

func (v *verdicts) apply(r *ruling) {
	p, n := r.peer, r.body.Serial
	switch r.body.Kind {
	case rulingBan:
		v.banned[p] = r
		v.out[p], v.weak[p] = max(v.out[p], n), max(v.weak[p], n)
	case rulingDemote:
		v.weak[p] = max(v.weak[p], n)
	case rulingPardon:
		if _, ok := v.banned[p]; ok {
			delete(v.banned, p)
			v.out[p], v.weak[p] = max(v.out[p], n), max(v.weak[p], n)
		}
	}
}

// overruled says whether a later ruling took the office from the issuer of r, and
// with it what r keeps, unless the later one keeps that too.
func overruled(r *ruling, later []*ruling) bool {
	return slices.ContainsFunc(later, func(l *ruling) bool {
		return l.peer == r.issuer && (l.body.Kind == rulingBan || l.body.Kind == rulingDemote && l.body.Serial > r.body.IssuerSerial)
	})
}

// mayHold says whether no ruling stands against the record itself.
func (v *verdicts) mayHold(rec *signedRecord) bool {
	_, out := v.banned[rec.peer]
	return !out && rec.body.Serial >= v.out[rec.peer]
}

// powerful says whether the record makes its peer an admin.
func (v *verdicts) powerful(rec *signedRecord) bool {
	_, ok := v.valid[rec]
	return ok && rec.body.Role == RoleAdmin && rec.body.Serial >= v.weak[rec.peer]
}

// inOffice says whether the term is one of an admin. One who left counts: what an
// admin signed outlives its leaving.
func (c *court) inOffice(v verdicts, t term) bool {
	e, ok := c.entries[t.peer]
	return ok && slices.ContainsFunc(e.records, func(rec *signedRecord) bool {
		return rec.body.Serial == t.serial && v.powerful(rec)
	})
}

// hasAdmin says whether there is an active admin.
func (c *court) hasAdmin(v verdicts) bool {
	for _, e := range c.entries {
		if rec := e.newest(v); rec != nil && v.powerful(rec) && !e.departed(rec) {
			return true
		}
	}
	return false
}

// keepsOf lists the records which, after a ban or demotion of p, would hold no
// longer although the ruling is not about them: those that only p vouches for. Of a
// demoted peer its own record is among them when that holds by its own word.
func (c *court) keepsOf(r *ruling) []*signedRecord {
	before := c.settle(c.accepted)
	after := c.settle(append(slices.Clone(c.accepted), r))
	var out []*signedRecord
	for rec := range before.valid {
		if _, still := after.valid[rec]; still || rec.peer == r.peer && r.body.Kind == rulingBan {
			continue
		}
		if rec.issuer == r.peer || c.keptBy(r.peer, rec) {
			out = append(out, rec)
		}
	}
	slices.SortFunc(out, func(a, b *signedRecord) int { return bytes.Compare(a.hash[:], b.hash[:]) })
	return out
}

func (c *court) keptBy(p peer.ID, rec *signedRecord) bool {
	return slices.ContainsFunc(c.accepted, func(r *ruling) bool { return r.issuer == p && r.keeps[rec.hash] })
}
