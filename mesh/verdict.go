package mesh

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
)

// A box that was removed does not hear of it like the others: nobody speaks to it
// any more. So whoever it connects to hands it the signed rulings with what it
// takes to check them, and nothing else, and takes the same from it. Both believe
// it as they believe any row: by the signatures, on top of the rows that they have.
// So two admins who banned each other across a cut come to the same end.

// verdictWait bounds the handing over.
const verdictWait = 5 * time.Second

// verdict is the one frame of a verdict stream.
type verdict struct {
	Mesh []byte `cbor:"1,keyasint"`
	Rows []byte `cbor:"2,keyasint"` // crdt.EncodeItems
}

// tellVerdict runs beside its caller, which holds locks.
func (m *Mesh) tellVerdict(p peer.ID) {
	if !m.handlers.enter() {
		return
	}
	go func() {
		defer m.handlers.leave()
		if err := m.sendVerdict(p); err != nil {
			m.log.Debug("removed box not told", "peer", p.String(), "err", err)
		}
	}()
}

func (m *Mesh) sendVerdict(p peer.ID) error {
	ctx, cancel := context.WithTimeout(m.life, verdictWait)
	defer cancel()
	s, err := m.openAny(network.WithNoDial(ctx, "a removed box is not called"), p, protocolVerdict)
	if err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	err = s.SetDeadline(deadline)
	if err == nil {
		err = m.giveVerdict(s)
	}
	if err == nil {
		err = m.takeVerdict(s)
	}
	if err != nil {
		s.Reset()
		return fmt.Errorf("tell verdict: %w", err)
	}
	return s.Close()
}

func (m *Mesh) giveVerdict(s *stream) error {
	v := m.view.Load()
	rows, err := m.store.List(nsMembers)
	if err != nil {
		return fmt.Errorf("read members: %w", err)
	}
	raw, err := crdt.EncodeItems(verdictRows(v.mesh, v.roster, rows))
	if err != nil {
		return fmt.Errorf("encode verdict: %w", err)
	}
	return writeFrame(s, verdict{Mesh: v.mesh[:], Rows: raw})
}

// verdictRows are the rulings, the leaves, and all records of those who were ever
// admins, since the last one says whether they are now: they lead a removed box to the
// same verdict, if not to the mere members. No names and no addresses are among them.
// Without a roster, all records are.
func verdictRows(mesh meshID, r *roster, rows []crdt.Item) []crdt.Item {
	var out []crdt.Item
	for _, item := range rows {
		id, err := memberKeyPeer(item.Key)
		if err != nil {
			continue
		}
		cells := map[string]crdt.Cell{}
		for name, cell := range item.Row.Cells {
			_, err := checkRecord(mesh, id, name, cell)
			if isRuling(name) || name == cellLeft || err == nil && (r == nil || r.ruled[id]) {
				cells[name] = cell
			}
		}
		if len(cells) > 0 {
			out = append(out, crdt.Item{Key: item.Key, Row: crdt.Row{Length: item.Row.Length, Cells: cells}})
		}
	}
	return out
}

// serveVerdict learns from a box of this mesh that this one was removed, and tells
// in turn what it knows: perhaps the other was removed first.
func (m *Mesh) serveVerdict(s *stream) {
	err := s.SetDeadline(time.Now().Add(verdictWait))
	if err == nil {
		err = m.takeVerdict(s)
	}
	if err == nil {
		err = m.giveVerdict(s)
	}
	if err != nil {
		m.refuse(s, protocolVerdict, err)
		return
	}
	s.Close()
}

func (m *Mesh) takeVerdict(s *stream) error {
	v := m.view.Load()
	var got verdict
	if err := readFrame(s, maxJoin, &got); err != nil {
		return err
	}
	if string(got.Mesh) != string(v.mesh[:]) {
		return errMeshReplaced
	}
	items, err := crdt.DecodeItems(got.Rows)
	if err != nil {
		return fmt.Errorf("decode verdict: %w", err)
	}
	// Of what such a box says nothing counts but what is signed.
	_, err = m.merge(v.generation, verdictRows(v.mesh, nil, slices.DeleteFunc(items, func(i crdt.Item) bool { return !isMember(i) })))
	return err
}
