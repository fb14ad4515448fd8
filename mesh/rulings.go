package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
)

// errNoAdminLeft: a ruling after which nobody could admit or remove anybody.
var errNoAdminLeft = errors.New("no admin would be left")

// Ban is a box that an admin removed.
type Ban struct {
	Peer   string
	Name   string // its label, when known
	By     string // peer ID of the admin; empty when no admin banned it but the one who vouched for it
	Reason string
	At     time.Time // by the admin's clock
}

// Ban removes a member by this box's admin word, the founder and those through
// whom this box came in included. In the same signed cell this box vouches for
// the records that only the banned one had signed. The connections of the banned
// box end on every box that hears of it; it is told why.
func (m *Mesh) Ban(ctx context.Context, peerText, why string) error {
	if err := m.rule(ctx, rulingBan, peerText, why); err != nil {
		return fmt.Errorf("ban %s: %w", peerText, err)
	}
	m.spread()
	return nil
}

// Demote takes the admin role from a member, this box included, and leaves it in
// the mesh. What it signed goes on as with Ban.
func (m *Mesh) Demote(ctx context.Context, peerText, why string) error {
	if err := m.rule(ctx, rulingDemote, peerText, why); err != nil {
		return fmt.Errorf("demote %s: %w", peerText, err)
	}
	return nil
}

// Unban lets a banned box be admitted again, by a new token. Until then it is no
// member, and nothing that it signed before counts again.
func (m *Mesh) Unban(ctx context.Context, peerText string) error {
	if err := m.rule(ctx, rulingPardon, peerText, ""); err != nil {
		return fmt.Errorf("unban %s: %w", peerText, err)
	}
	return nil
}

// Promote makes a member an admin.
func (m *Mesh) Promote(ctx context.Context, peerText string) error {
	p, _, err := peerKey(peerText)
	if err == nil {
		err = m.writeMembers(func(v *view, tx rowWriter) error { return m.promote(v, tx, p) })
	}
	if err != nil {
		return fmt.Errorf("promote %s: %w", peerText, err)
	}
	m.log.Info("node promoted to admin", "peer", peerText)
	m.offerOrWarn(ctx, "promotion")
	return nil
}

func (m *Mesh) promote(v *view, tx rowWriter, p peer.ID) error {
	if err := m.needAdmin(v); err != nil {
		return err
	}
	member, ok := v.roster.members[p]
	switch {
	case !ok || member.standing != active:
		return ErrNotMember
	case member.admin():
		return errors.New("it is an admin already")
	}
	return m.writeRecord(v, tx, p, memberBody{
		Role: RoleAdmin, Serial: v.roster.floors[p] + 1, Admission: member.signed.admission(), Joined: member.record.Joined,
	})
}

// rule signs a ruling, makes sure that it will stand, and writes it.
func (m *Mesh) rule(ctx context.Context, kind, peerText, why string) error {
	p, _, err := peerKey(peerText)
	if err != nil {
		return err
	}
	err = m.writeMembers(func(v *view, tx rowWriter) error {
		if err := m.mayRule(v, kind, p); err != nil {
			return err
		}
		body, blob, err := m.signRuling(v, kind, p, cleanDetail(why))
		if err != nil {
			return err
		}
		if err := m.wouldStand(v, p, body, blob); err != nil {
			return err
		}
		return tx.SetAt(memberKey(p), rulingCell(body), blob, crdt.HLC(body.Serial))
	})
	if err != nil {
		return err
	}
	m.log.Warn("membership ruling made", "kind", kind, "peer", peerText, "reason", why)
	m.offerOrWarn(ctx, kind)
	return nil
}

func (m *Mesh) mayRule(v *view, kind string, p peer.ID) error {
	if err := m.needAdmin(v); err != nil {
		return err
	}
	stands := v.roster.standing(p)
	switch {
	case kind == rulingPardon && stands != banned:
		return errors.New("it is not banned")
	case kind == rulingPardon:
		return nil
	case stands == banned:
		return errors.New("it is banned already")
	case stands == stranger && !v.roster.removed(p):
		return ErrNotMember
	case kind == rulingBan && p == m.self:
		return errors.New("a box cannot ban itself; it can leave")
	case kind == rulingDemote && !v.roster.admitters[p]:
		return errors.New("it is no admin")
	}
	return nil
}

func (m *Mesh) signRuling(v *view, kind string, p peer.ID, why string) (rulingBody, []byte, error) {
	body := rulingBody{
		Mesh: v.mesh[:], Peer: p.String(), Serial: v.roster.floors[p] + 1, Kind: kind, Issuer: m.self.String(),
		IssuerSerial: v.roster.members[m.self].record.Serial, At: m.stamp(v), Reason: why,
	}
	for _, rec := range v.roster.court.keepsOf(&ruling{body: body, peer: p, issuer: m.self}) {
		body.Keeps = append(body.Keeps, keep{Peer: rec.body.Peer, Serial: rec.body.Serial, Hash: rec.hash[:]})
	}
	blob, err := sign(kindRuling, body, m.privateKey())
	return body, blob, err
}

// wouldStand judges the ruling as every box will: one that would be void is
// refused where it is made.
func (m *Mesh) wouldStand(v *view, p peer.ID, body rulingBody, blob []byte) error {
	rows, err := m.store.List(nsMembers)
	if err != nil {
		return fmt.Errorf("read members: %w", err)
	}
	item := crdt.Item{Key: memberKey(p), Row: crdt.Row{Length: 1, Cells: map[string]crdt.Cell{
		rulingCell(body): {At: crdt.HLC(body.Serial), By: m.replica(), Value: blob},
	}}}
	for _, void := range evaluate(v.mesh, mergeItems(rows, []crdt.Item{item})).void {
		if void.peer == p && void.issuer == m.self && void.body.Serial == body.Serial {
			return errNoAdminLeft
		}
	}
	return nil
}

// Bans lists the boxes that were removed, by peer ID.
func (m *Mesh) Bans() []Ban {
	r := m.view.Load().roster
	var out []Ban
	for p := range r.bans {
		out = append(out, r.banOf(p))
	}
	slices.SortFunc(out, func(a, b Ban) int { return cmp.Compare(a.Peer, b.Peer) })
	return out
}

// Banned says whether this box itself was removed from its mesh. It then serves as
// a member no more; a new token after an Unban, or leaving, ends that.
func (m *Mesh) Banned() (Ban, bool) {
	r := m.view.Load().roster
	return r.banOf(m.self), r.outcast
}

func (r *roster) banOf(p peer.ID) Ban {
	ban := Ban{Peer: p.String(), Name: r.names[p]}
	if by, ok := r.bans[p]; ok {
		ban.By, ban.Reason, ban.At = by.body.Issuer, by.body.Reason, by.body.At.Time()
		return ban
	}
	ban.Reason = "the box that admitted it was removed, and nobody else vouches for it"
	return ban
}

// errNotServing is what streams of a box that was removed end with.
var errNotServing = errors.New("this box does not serve")

// Serving says whether this box takes part as a member; if not, the error says why
// and what to do.
func (m *Mesh) Serving() error {
	if ban, out := m.Banned(); out {
		return fmt.Errorf("%w: it was removed from its mesh by %s: %s", errNotServing, m.nameOf(ban.By), ban.Reason)
	}
	if m.clones.stopped() {
		return fmt.Errorf("%w: it runs under the identity of another box; run `llmgw identity rotate` here", errNotServing)
	}
	return nil
}

// nameOf is what a person calls a peer.
func (m *Mesh) nameOf(peerText string) string {
	p, err := peer.Decode(peerText)
	if err != nil {
		return "an admin"
	}
	if name := m.view.Load().roster.names[p]; name != "" {
		return name
	}
	return peerText
}
