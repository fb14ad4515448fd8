package mesh

import (
	"fmt"
	"maps"
	"strings"
	"unicode"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
)

const (
	// maxName bounds a box's label, in characters.
	maxName = 63
	// maxAddresses bounds what one member can make the others dial.
	maxAddresses = 32
	maxAddress   = 256 // bytes
)

// cleanName makes a label from outside fit to be shown and logged.
func cleanName(name string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, name)
	if runes := []rune(name); len(runes) > maxName {
		name = string(runes[:maxName])
	}
	return strings.TrimSpace(name)
}

func decodeAddresses(raw []byte) []string {
	var addrs []string
	if len(raw) == 0 || unmarshal(raw, &addrs) != nil {
		return nil
	}
	return capAddresses(addrs)
}

func capAddresses(addrs []string) []string {
	kept := make([]string, 0, min(len(addrs), maxAddresses))
	for _, a := range addrs {
		if len(a) <= maxAddress && len(kept) < maxAddresses {
			kept = append(kept, a)
		}
	}
	return kept
}

// screen drops from remote rows what may not be merged, and returns the rest with
// the number of rows and cells that it dropped. Only membership is screened: all
// else any member may write.
func screen(mesh meshID, current, incoming []crdt.Item) (kept []crdt.Item, dropped int) {
	var members []crdt.Item
	for _, item := range incoming {
		if item.Key.Namespace() != nsMembers {
			kept = append(kept, item)
			continue
		}
		sound, n := soundMember(mesh, item)
		dropped += n
		if sound != nil {
			members = append(members, *sound)
		}
	}
	if len(members) == 0 {
		return kept, dropped
	}
	union := evaluate(mesh, mergeItems(current, members))
	for _, item := range members {
		authorised, n := authorisedMember(mesh, union, item)
		dropped += n
		if authorised != nil {
			kept = append(kept, *authorised)
		}
	}
	return kept, dropped
}

// soundMember keeps the cells of a member row whose form and signature hold.
// Member rows are made once and never deleted: leave and ban are cells, so
// that no unsigned tombstone can remove anybody.
func soundMember(mesh meshID, item crdt.Item) (*crdt.Item, int) {
	id, err := memberKeyPeer(item.Key)
	if err != nil || item.Row.Length != 1 {
		return nil, 1
	}
	cells := maps.Clone(item.Row.Cells)
	dropped := 0
	for name, cell := range item.Row.Cells {
		if err := soundCell(mesh, id, name, cell); err != nil {
			delete(cells, name)
			dropped++
		}
	}
	if len(cells) == 0 {
		return nil, dropped
	}
	return &crdt.Item{Key: item.Key, Row: crdt.Row{Length: 1, Cells: cells}}, dropped
}

func soundCell(mesh meshID, id peer.ID, name string, cell crdt.Cell) error {
	var err error
	switch {
	case isRecord(name):
		_, err = checkRecord(mesh, id, name, cell)
	case name == cellLeft:
		_, err = checkLeft(mesh, id, cell)
	case isRuling(name):
		_, err = checkRuling(mesh, id, name, cell)
	}
	return err
}

// authorisedMember keeps the cells whose signer could say so, given all that is
// known now and all that came along. Whether what they say stands is judged
// anew on every box from all cells: of two rulings against each other both must be
// everywhere.
func authorisedMember(mesh meshID, union *roster, item crdt.Item) (*crdt.Item, int) {
	id, err := memberKeyPeer(item.Key)
	if err != nil {
		return nil, 1
	}
	cells := maps.Clone(item.Row.Cells)
	dropped := 0
	for name, cell := range item.Row.Cells {
		if by, signed := signerOf(mesh, id, name, cell); signed && !union.ever[by] {
			delete(cells, name)
			dropped++
		}
	}
	if len(cells) == 0 {
		return nil, dropped
	}
	return &crdt.Item{Key: item.Key, Row: crdt.Row{Length: 1, Cells: cells}}, dropped
}

// signerOf says by which admin's word a sound cell is; the genesis and the peer
// itself need nobody's.
func signerOf(mesh meshID, id peer.ID, name string, cell crdt.Cell) (by term, signed bool) {
	switch {
	case isRecord(name):
		if rec, err := checkRecord(mesh, id, name, cell); err == nil {
			return term{rec.issuer, rec.body.IssuerSerial}, rec.issuer != ""
		}
	case isRuling(name):
		if r, err := checkRuling(mesh, id, name, cell); err == nil {
			return term{r.issuer, r.body.IssuerSerial}, true
		}
	}
	return term{}, false
}

// mergeItems joins rows in memory, with the store's own merge function.
func mergeItems(sets ...[]crdt.Item) []crdt.Item {
	rows := map[crdt.Key]crdt.Row{}
	var order []crdt.Key
	for _, set := range sets {
		for _, item := range set {
			if had, ok := rows[item.Key]; ok {
				rows[item.Key] = crdt.Merge(had, item.Row)
				continue
			}
			rows[item.Key] = item.Row
			order = append(order, item.Key)
		}
	}
	out := make([]crdt.Item, 0, len(order))
	for _, k := range order {
		out = append(out, crdt.Item{Key: k, Row: rows[k]})
	}
	return out
}

// recordItem is the row part that makes p a member.
func recordItem(p peer.ID, body memberBody, blob []byte, by crdt.ReplicaID) crdt.Item {
	return crdt.Item{Key: memberKey(p), Row: crdt.Row{Length: 1, Cells: map[string]crdt.Cell{
		recordCell(body): {At: crdt.HLC(body.Serial), By: by, Value: blob},
	}}}
}

// verifyChain checks that the first of blobs makes p an admin or member of the mesh
// by the others, and returns its record. It is what a joiner has to go by.
func verifyChain(mesh meshID, p peer.ID, blobs [][]byte) (memberBody, error) {
	var rows []crdt.Item
	for _, blob := range blobs {
		var body memberBody
		if _, err := openBlob(kindMember, blob, &body); err != nil {
			return memberBody{}, err
		}
		id, _, err := peerKey(body.Peer)
		if err != nil {
			return memberBody{}, err
		}
		rows = append(rows, recordItem(id, body, blob, 0))
	}
	m, ok := evaluate(mesh, mergeItems(rows)).members[p]
	if !ok {
		return memberBody{}, fmt.Errorf("verify chain of %s: it does not reach the mesh", p)
	}
	return m.record, nil
}
