package mesh

import (
	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
)

// Namespaces and cells that this package reads and writes itself.
const (
	nsMembers = "members"
	nsTokens  = "tokens"

	// Cells of signed blobs are named after what is signed, see recordCell and
	// rulingCell: no two admins ever overwrite each other's word, and what was
	// signed under an old serial stays readable.
	cellRecordPrefix = "record/"
	cellRulingPrefix = "ruling/"
	cellRecord       = "record"    // of a token: signed tokenBody
	cellLeft         = "left"      // signed leftBody; stamped with its serial
	cellName         = "name"      // label, written by the box itself
	cellAddresses    = "addresses" // CBOR array of multiaddrs, written by the box itself
	cellRevoked      = "revoked"   // of a token
	cellUsePrefix    = "use/"      // of a token: one cell per joiner
)

// standing is what a peer is to us.
type standing int

const (
	stranger standing = iota
	active            // a member
	departed          // was a member and left
	banned            // removed by an admin
)

// member is one row of the roster.
type member struct {
	id       peer.ID
	name     string
	addrs    []string
	record   memberBody // the newest that holds
	signed   *signedRecord
	role     Role // in force: a demotion outweighs the record
	standing standing
}

func (m *member) admin() bool { return m.role == RoleAdmin }

// term is a time in which a peer was an admin: it begins with the record of that
// serial. What an admin signs names the term under which it did.
type term struct {
	peer   peer.ID
	serial uint64
}

// roster is who belongs to one mesh. It is immutable.
type roster struct {
	mesh    meshID
	members map[peer.ID]*member // valid chains only, whatever their standing
	bans    map[peer.ID]*ruling
	void    []*ruling          // rulings that do not stand
	floors  map[peer.ID]uint64 // a new record needs a serial above this
	names   map[peer.ID]string // labels, of those who were removed too
	// admitters have a term in force: what they sign now counts.
	admitters map[peer.ID]bool
	// ever are all terms that chained to the genesis, whatever was ruled later,
	// and parents the records by which they did. What may be stored goes by it: a
	// ruling that came first must not hide the one that it makes void.
	ever    map[term]bool
	parents map[*signedRecord]*signedRecord
	ruled   map[peer.ID]bool          // who have one of those terms
	newest  map[peer.ID]*signedRecord // by parents alone
	lastAt  crdt.HLC                  // of all that is signed
	court   *court
	// outcast: this box itself was removed, so nobody is a member to it.
	outcast bool
}

// standing of a peer; strangers are not in the roster at all.
func (r *roster) standing(p peer.ID) standing {
	if _, ok := r.bans[p]; ok {
		return banned
	}
	if m, ok := r.members[p]; ok {
		return m.standing
	}
	return stranger
}

// active says whether p takes part, together with this box.
func (r *roster) active(p peer.ID) bool { return !r.outcast && r.standing(p) == active }

// removed says whether p was a member and is none by an admin's ruling: it was
// banned, or all who vouched for it were.
func (r *roster) removed(p peer.ID) bool {
	_, in := r.members[p]
	return !in && r.newest[p] != nil
}

// admins counts the active ones but for one peer.
func (r *roster) admins(but peer.ID) int {
	n := 0
	for id, m := range r.members {
		if id != but && m.admin() && m.standing == active {
			n++
		}
	}
	return n
}

// everHad counts all peers that were ever members.
func (r *roster) everHad() int { return len(r.newest) }

// chainOf lists the signed records from p's own up to one by the genesis. Rulings
// are not in it: whoever it convinces learns them with the rows.
func (r *roster) chainOf(p peer.ID) [][]byte {
	m, ok := r.members[p]
	if !ok {
		return nil
	}
	var chain [][]byte
	for rec := m.signed; rec != nil; rec = r.parents[rec] {
		chain = append(chain, rec.blob)
	}
	return chain
}

// evaluate derives the roster from rows. It is pure: the same rows give the
// same roster on every box, in whatever order they came.
func evaluate(mesh meshID, rows []crdt.Item) *roster {
	entries := map[peer.ID]*entry{}
	for _, item := range rows {
		if e, err := readEntry(mesh, item); err == nil {
			entries[e.id] = e
		}
	}
	c := newCourt(entries)
	start := c.settle(nil)
	end := c.judge(start)
	r := &roster{
		mesh: mesh, members: map[peer.ID]*member{}, bans: end.banned, void: c.void, floors: map[peer.ID]uint64{},
		names: map[peer.ID]string{}, admitters: map[peer.ID]bool{}, ever: map[term]bool{}, parents: start.valid,
		ruled:  map[peer.ID]bool{},
		newest: map[peer.ID]*signedRecord{}, court: c,
	}
	for id, e := range entries {
		r.floors[id], r.names[id] = e.floor(), e.name
		r.lastAt = max(r.lastAt, e.lastAt())
		if first := e.newest(start); first != nil {
			r.newest[id] = first
		}
		for _, rec := range e.records {
			if start.powerful(rec) {
				r.ever[term{id, rec.body.Serial}], r.ruled[id] = true, true
			}
			r.admitters[id] = r.admitters[id] || end.powerful(rec)
		}
		if newest := e.newest(end); newest != nil {
			r.members[id] = e.member(end, newest)
		}
	}
	return r
}

func (e *entry) member(v verdicts, newest *signedRecord) *member {
	m := &member{
		id: e.id, name: e.name, addrs: e.addrs, record: newest.body, signed: newest, role: RoleMember, standing: active,
	}
	if v.powerful(newest) {
		m.role = RoleAdmin
	}
	if e.departed(newest) {
		m.standing = departed
	}
	return m
}
