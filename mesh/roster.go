package mesh

import (
	"cmp"
	"crypto/ed25519"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
)

// Namespaces and cells that this package reads and writes itself.
const (
	nsMembers = "members"
	nsTokens  = "tokens"

	// cellRecordPrefix and a serial name a signed memberBody, stamped with that
	// serial. Records are kept: what a member signed under an old one stays signed.
	cellRecordPrefix = "record/"
	cellRecord       = "record"    // of a token: signed tokenBody
	cellLeft         = "left"      // signed leftBody; stamped with its serial
	cellBan          = "ban"       // signed banBody; stamped with its serial
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
	standing standing
}

func (m *member) admin() bool { return m.record.Role == RoleAdmin }

// roster is who belongs to one mesh. It is immutable.
type roster struct {
	mesh    meshID
	members map[peer.ID]*member // valid chains only, whatever their standing
	bans    map[peer.ID]banBody
	floors  map[peer.ID]uint64 // a new record needs a serial above this
	// admitters are all who hold or held a valid admin record.
	admitters map[string]bool
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

func (r *roster) active(p peer.ID) bool { return r.standing(p) == active }

// admins counts the active ones but for one peer.
func (r *roster) admins(but peer.ID) int {
	n := 0
	for id, m := range r.members {
		if id != but && m.admin() && r.active(id) {
			n++
		}
	}
	return n
}

// everHad counts all peers that were ever members.
func (r *roster) everHad() int {
	n := len(r.members)
	for id := range r.bans {
		if _, ok := r.members[id]; !ok {
			n++
		}
	}
	return n
}

// chainOf lists the signed records from p's own up to one by the genesis.
func (r *roster) chainOf(p peer.ID) [][]byte {
	m, ok := r.members[p]
	if !ok {
		return nil
	}
	var chain [][]byte
	for rec := m.signed; rec != nil; rec = rec.parent {
		chain = append(chain, rec.blob)
	}
	return chain
}

// signedRecord is one record of a peer. Parent is the record of the issuer by
// which it holds: nil under the genesis, and for a record that does not hold.
type signedRecord struct {
	body   memberBody
	blob   []byte
	parent *signedRecord
}

// entry is a row of namespace members as read, before its chain is checked.
type entry struct {
	id      peer.ID
	records []*signedRecord
	left    *leftBody
	ban     *banBody
	name    string
	addrs   []string
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
	bans := standingBans(entries)
	valid := chain(entries, bans)
	r := &roster{mesh: mesh, members: map[peer.ID]*member{}, bans: bans, floors: map[peer.ID]uint64{}, admitters: map[string]bool{}}
	for id, e := range entries {
		r.floors[id] = e.floor()
		r.admitters[id.String()] = adminRecord(id.String(), entries, valid) != nil
		newest := e.newest(valid)
		if newest == nil {
			continue
		}
		m := &member{id: id, name: e.name, addrs: e.addrs, record: newest.body, signed: newest, standing: active}
		if e.left != nil && e.left.Serial >= newest.body.Serial {
			m.standing = departed
		}
		r.members[id] = m
	}
	return r
}

// floor is the highest serial that was used for a peer.
func (e *entry) floor() uint64 {
	var n uint64
	for _, rec := range e.records {
		n = max(n, rec.body.Serial)
	}
	if e.left != nil {
		n = max(n, e.left.Serial)
	}
	if e.ban != nil {
		n = max(n, e.ban.Serial)
	}
	return n
}

// newest is the valid record with the highest serial.
func (e *entry) newest(valid map[*signedRecord]bool) *signedRecord {
	var best *signedRecord
	for _, rec := range e.records {
		if valid[rec] && (best == nil || rec.body.Serial > best.body.Serial) {
			best = rec
		}
	}
	return best
}

// chain says which records reach the genesis, and links each to the one that it
// holds by. Records that only a banned peer signed are void. A record counts
// as an admin's signature even after a newer one of the same peer: a founder
// who left and was admitted again must not void its own mesh.
func chain(entries map[peer.ID]*entry, bans map[peer.ID]banBody) map[*signedRecord]bool {
	valid := map[*signedRecord]bool{}
	for grown := true; grown; {
		grown = false
		for id, e := range entries {
			if _, out := bans[id]; out {
				continue
			}
			for _, rec := range e.records {
				if parent, ok := holds(rec, entries, valid); ok && !valid[rec] {
					rec.parent, valid[rec], grown = parent, true, true
				}
			}
		}
	}
	return valid
}

func holds(rec *signedRecord, entries map[peer.ID]*entry, valid map[*signedRecord]bool) (*signedRecord, bool) {
	if rec.body.Issuer == "" {
		return nil, true // the genesis signature was checked when the record was read
	}
	by := adminRecord(rec.body.Issuer, entries, valid)
	return by, by != nil
}

// adminRecord finds a valid record that makes the issuer an admin.
func adminRecord(issuer string, entries map[peer.ID]*entry, valid map[*signedRecord]bool) *signedRecord {
	id, _, err := peerKey(issuer)
	if err != nil || entries[id] == nil {
		return nil
	}
	for _, rec := range entries[id].records {
		if valid[rec] && rec.body.Role == RoleAdmin {
			return rec
		}
	}
	return nil
}

// standingBans applies bans in one fixed order: of two admins who ban each
// other, the earlier ban stands on every box.
func standingBans(entries map[peer.ID]*entry) map[peer.ID]banBody {
	var candidates []banBody
	for _, e := range entries {
		if e.ban != nil {
			candidates = append(candidates, *e.ban)
		}
	}
	slices.SortFunc(candidates, func(a, b banBody) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Issuer, b.Issuer))
	})
	bans := map[peer.ID]banBody{}
	for _, ban := range candidates {
		id, _, err := peerKey(ban.Peer)
		if err != nil || adminRecord(ban.Issuer, entries, chain(entries, bans)) == nil {
			continue
		}
		if !lifted(entries[id], ban) {
			bans[id] = ban
		}
	}
	return bans
}

// lifted says whether an admin admitted the peer again after the ban. A record by
// the genesis key does not lift it: in a mesh that goes by secret the banned
// box could sign that itself.
func lifted(e *entry, ban banBody) bool {
	return slices.ContainsFunc(e.records, func(rec *signedRecord) bool {
		return rec.body.Serial > ban.Serial && rec.body.Issuer != ""
	})
}

// readEntry reads a row. Cells that do not hold are left out.
func readEntry(mesh meshID, item crdt.Item) (*entry, error) {
	id, err := memberKeyPeer(item.Key)
	if err != nil {
		return nil, err
	}
	e := &entry{id: id}
	for name, cell := range item.Row.Cells {
		e.readCell(mesh, name, cell)
	}
	return e, nil
}

func (e *entry) readCell(mesh meshID, name string, cell crdt.Cell) {
	if isRecord(name) {
		if body, err := checkRecord(mesh, e.id, name, cell); err == nil {
			e.records = append(e.records, &signedRecord{body: *body, blob: cell.Value})
		}
		return
	}
	switch name {
	case cellLeft:
		if body, err := checkLeft(mesh, e.id, cell); err == nil {
			e.left = body
		}
	case cellBan:
		if body, err := checkBan(mesh, e.id, cell); err == nil {
			e.ban = body
		}
	case cellName:
		e.name = cleanName(string(cell.Value))
	case cellAddresses:
		e.addrs = decodeAddresses(cell.Value)
	}
}

func isRecord(name string) bool { return strings.HasPrefix(name, cellRecordPrefix) }

func recordCell(serial uint64) string {
	return cellRecordPrefix + strconv.FormatUint(serial, 10)
}

func memberKey(p peer.ID) crdt.Key { return crdt.NewKey(nsMembers, p.String()) }

func memberKeyPeer(k crdt.Key) (peer.ID, error) {
	parts, err := k.Parts()
	if err != nil {
		return "", fmt.Errorf("read member key: %w", err)
	}
	if k.Namespace() != nsMembers || len(parts) != 1 {
		return "", fmt.Errorf("read member key: %s names no member", k)
	}
	id, _, err := peerKey(parts[0])
	return id, err
}

// checkRecord checks the form and the signature of a record, not whether its
// issuer was an admin. Name and stamp of the cell follow from the serial, so that
// an old record cannot be made to look new nor take the place of another.
func checkRecord(mesh meshID, id peer.ID, name string, cell crdt.Cell) (*memberBody, error) {
	var body memberBody
	env, err := openBlob(kindMember, cell.Value, &body)
	if err != nil {
		return nil, err
	}
	key, err := recordSigner(mesh, &body)
	if err != nil {
		return nil, err
	}
	if err := checkSubject(mesh, id, body.Mesh, body.Peer, body.Serial, cell.At); err != nil {
		return nil, err
	}
	if name != recordCell(body.Serial) {
		return nil, fmt.Errorf("record of serial %d in cell %q", body.Serial, name)
	}
	if body.Role != RoleAdmin && body.Role != RoleMember {
		return nil, fmt.Errorf("check member: unknown role %q", body.Role)
	}
	return &body, env.check(kindMember, key)
}

func recordSigner(mesh meshID, body *memberBody) (ed25519.PublicKey, error) {
	if body.Issuer == "" {
		return genesisKey(mesh, body.Genesis)
	}
	if body.Issuer == body.Peer {
		return nil, fmt.Errorf("check member: %s vouches for itself", body.Peer)
	}
	_, key, err := peerKey(body.Issuer)
	return key, err
}

func checkSubject(mesh meshID, id peer.ID, gotMesh []byte, gotPeer string, serial uint64, at crdt.HLC) error {
	switch {
	case string(gotMesh) != string(mesh[:]):
		return fmt.Errorf("signed blob is of another mesh")
	case gotPeer != id.String():
		return fmt.Errorf("signed blob is about %s, its row about %s", gotPeer, id)
	case serial == 0 || at != crdt.HLC(serial):
		return fmt.Errorf("signed blob has serial %d, its cell stamp %d", serial, at)
	}
	return nil
}

func checkLeft(mesh meshID, id peer.ID, cell crdt.Cell) (*leftBody, error) {
	var body leftBody
	env, err := openBlob(kindLeft, cell.Value, &body)
	if err != nil {
		return nil, err
	}
	if err := checkSubject(mesh, id, body.Mesh, body.Peer, body.Serial, cell.At); err != nil {
		return nil, err
	}
	_, key, err := peerKey(body.Peer)
	if err != nil {
		return nil, err
	}
	return &body, env.check(kindLeft, key)
}

func checkBan(mesh meshID, id peer.ID, cell crdt.Cell) (*banBody, error) {
	var body banBody
	env, err := openBlob(kindBan, cell.Value, &body)
	if err != nil {
		return nil, err
	}
	if err := checkSubject(mesh, id, body.Mesh, body.Peer, body.Serial, cell.At); err != nil {
		return nil, err
	}
	_, key, err := peerKey(body.Issuer)
	if err != nil {
		return nil, err
	}
	if body.Issuer == body.Peer {
		return nil, fmt.Errorf("check ban: %s bans itself", body.Peer)
	}
	return &body, env.check(kindBan, key)
}
