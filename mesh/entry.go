package mesh

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
	"llmgw/mesh/token"
)

// signedRecord is one record of a peer, as read.
type signedRecord struct {
	body   memberBody
	peer   peer.ID
	issuer peer.ID // empty: the genesis key
	blob   []byte
	hash   [32]byte
}

// admission is the serial of the record by which the peer came in last.
func (r *signedRecord) admission() uint64 { return cmp.Or(r.body.Admission, r.body.Serial) }

// ruling is one signed word of an admin about a peer, as read.
type ruling struct {
	body   rulingBody
	peer   peer.ID
	issuer peer.ID
	hash   [32]byte
	keeps  map[[32]byte]bool
}

// entry is a row of namespace members as read, before its chain is checked.
type entry struct {
	id      peer.ID
	records []*signedRecord
	rulings []*ruling
	left    *leftBody
	name    string
	addrs   []string
}

// floor is the highest serial that was used for a peer.
func (e *entry) floor() uint64 {
	var n uint64
	for _, rec := range e.records {
		n = max(n, rec.body.Serial)
	}
	for _, r := range e.rulings {
		n = max(n, r.body.Serial)
	}
	if e.left != nil {
		n = max(n, e.left.Serial)
	}
	return n
}

func (e *entry) lastAt() crdt.HLC {
	var at crdt.HLC
	for _, rec := range e.records {
		at = max(at, rec.body.At)
	}
	for _, r := range e.rulings {
		at = max(at, r.body.At)
	}
	return at
}

// newest is the valid record with the highest serial; of two, the one by which the
// peer is more.
func (e *entry) newest(v verdicts) *signedRecord {
	var best *signedRecord
	for _, rec := range e.records {
		if _, ok := v.valid[rec]; ok && (best == nil || rec.above(best)) {
			best = rec
		}
	}
	return best
}

func (r *signedRecord) above(o *signedRecord) bool {
	if c := cmp.Compare(r.body.Serial, o.body.Serial); c != 0 {
		return c > 0
	}
	if r.body.Role != o.body.Role {
		return r.body.Role == RoleAdmin
	}
	return bytes.Compare(r.hash[:], o.hash[:]) > 0
}

// departed says whether the peer left after it came in by rec. A promotion since
// then does not bring it back.
func (e *entry) departed(rec *signedRecord) bool {
	return e.left != nil && e.left.Serial >= rec.admission()
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
	switch {
	case isRecord(name):
		if rec, err := checkRecord(mesh, e.id, name, cell); err == nil {
			e.records = append(e.records, rec)
		}
	case isRuling(name):
		if r, err := checkRuling(mesh, e.id, name, cell); err == nil {
			e.rulings = append(e.rulings, r)
		}
	case name == cellLeft:
		if body, err := checkLeft(mesh, e.id, cell); err == nil {
			e.left = body
		}
	case name == cellName:
		e.name = cleanName(string(cell.Value))
	case name == cellAddresses:
		e.addrs = decodeAddresses(cell.Value)
	}
}

func isRecord(name string) bool { return strings.HasPrefix(name, cellRecordPrefix) }

func isRuling(name string) bool { return strings.HasPrefix(name, cellRulingPrefix) }

// recordCell and rulingCell name the cell of a blob: a serial is used by one issuer
// once, so that none can take the place of another.
func recordCell(body memberBody) string {
	return cellRecordPrefix + strconv.FormatUint(body.Serial, 10) + "/" + cmp.Or(body.Issuer, "genesis")
}

func rulingCell(body rulingBody) string {
	return cellRulingPrefix + strconv.FormatUint(body.Serial, 10) + "/" + body.Issuer
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
// issuer was an admin. Name and stamp of the cell follow from the body, so that
// an old record cannot be made to look new.
func checkRecord(mesh meshID, id peer.ID, name string, cell crdt.Cell) (*signedRecord, error) {
	rec := &signedRecord{peer: id, blob: cell.Value, hash: sha256.Sum256(cell.Value)}
	env, err := openBlob(kindMember, cell.Value, &rec.body)
	if err != nil {
		return nil, err
	}
	body := &rec.body
	key, err := recordSigner(mesh, rec)
	if err != nil {
		return nil, err
	}
	if err := checkSubject(mesh, id, body.Mesh, body.Peer, body.Serial, cell.At); err != nil {
		return nil, err
	}
	switch {
	case name != recordCell(*body):
		return nil, fmt.Errorf("record of serial %d in cell %q", body.Serial, name)
	case body.Role != RoleAdmin && body.Role != RoleMember:
		return nil, fmt.Errorf("check member: unknown role %q", body.Role)
	case len(body.Token) != 0 && len(body.Token) != len(token.ID{}):
		return nil, fmt.Errorf("check member: token ID of %d bytes", len(body.Token))
	case body.Admission > body.Serial || body.At > maxStamp:
		return nil, fmt.Errorf("check member: admission %d, serial %d, stamp %d", body.Admission, body.Serial, body.At)
	}
	return rec, env.check(kindMember, key)
}

func recordSigner(mesh meshID, rec *signedRecord) (ed25519.PublicKey, error) {
	if rec.body.Issuer == "" {
		return genesisKey(mesh, rec.body.Genesis)
	}
	if rec.body.Issuer == rec.body.Peer {
		return nil, fmt.Errorf("check member: %s vouches for itself", rec.body.Peer)
	}
	issuer, key, err := peerKey(rec.body.Issuer)
	rec.issuer = issuer
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

// checkRuling checks form and signature, not whether the issuer was an admin.
func checkRuling(mesh meshID, id peer.ID, name string, cell crdt.Cell) (*ruling, error) {
	r := &ruling{peer: id, hash: sha256.Sum256(cell.Value), keeps: map[[32]byte]bool{}}
	env, err := openBlob(kindRuling, cell.Value, &r.body)
	if err != nil {
		return nil, err
	}
	body := &r.body
	if err := checkSubject(mesh, id, body.Mesh, body.Peer, body.Serial, cell.At); err != nil {
		return nil, err
	}
	var key ed25519.PublicKey
	if r.issuer, key, err = peerKey(body.Issuer); err != nil {
		return nil, err
	}
	switch {
	case name != rulingCell(*body):
		return nil, fmt.Errorf("ruling of serial %d in cell %q", body.Serial, name)
	case body.Kind != rulingBan && body.Kind != rulingDemote && body.Kind != rulingPardon:
		return nil, fmt.Errorf("check ruling: unknown kind %q", body.Kind)
	case r.issuer == id && body.Kind != rulingDemote:
		return nil, fmt.Errorf("check ruling: %s rules on itself", body.Peer)
	case body.At > maxStamp:
		return nil, fmt.Errorf("check ruling: stamp %d", body.At)
	}
	for _, k := range body.Keeps {
		if len(k.Hash) != sha256.Size {
			return nil, fmt.Errorf("check ruling: hash of %d bytes", len(k.Hash))
		}
		r.keeps[[32]byte(k.Hash)] = true
	}
	body.Reason = cleanDetail(body.Reason) // signed as it came; this is for people
	return r, env.check(kindRuling, key)
}
