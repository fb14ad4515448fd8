package mesh

import (
	"crypto/sha256"
	"fmt"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

const (
	// pageBytes bounds the rows of one frame; the reader sets the pace.
	pageBytes = 200 << 10
	// syncWait bounds one frame either way.
	syncWait = 30 * time.Second
	// maxParts bounds the frames that carry no cursor on: parts of one row, and the
	// membership rows of a large mesh.
	maxParts = 256
)

// Kinds of requests on a sync stream.
const (
	askPull  = 1 // send me what I lack
	askOffer = 2 // pull from me, on this stream, and tell when it is done
	// The rest is answered by a digestAnswer.
	askDigest  = 3 // your digest
	askBuckets = 4 // the rows of these buckets
	askRows    = 5 // these rows

	askMoney = 6 // what you know of spending and I do not; answered by moneyPages
)

// syncAsk is the first frame of the side that opened the stream, and of the side
// that answers an offer.
type syncAsk struct {
	Kind    uint8    `cbor:"1,keyasint"`
	Mesh    []byte   `cbor:"2,keyasint"`
	Index   uint64   `cbor:"3,keyasint,omitempty"` // of the log that Seq counts in
	Seq     uint64   `cbor:"4,keyasint,omitempty"`
	Roster  []byte   `cbor:"5,keyasint,omitempty"` // digest of the membership rows
	Buckets []int    `cbor:"6,keyasint,omitempty"`
	Rows    [][]byte `cbor:"7,keyasint,omitempty"` // keys
	// Membership says that no other rows are wanted: the asker was away for too long
	// to take any from this peer.
	Membership bool `cbor:"8,keyasint,omitempty"`
	// Sums, of askMoney, are the asker's: it does not know the order in which the
	// other side learned yet. crdt.MoneySums
	Sums []byte `cbor:"9,keyasint,omitempty"`
	// Known, of askPull, says what the asker has although it never pulled it from here.
	Known *syncKnown `cbor:"10,keyasint,omitempty"`
	// Proof, of askPull, is what came with Seq.
	Proof []byte `cbor:"11,keyasint,omitempty"`
}

// syncKnown is what a comparison of digests told: all present rows are the same but for
// those in Buckets, and of these the asker has the ones in Has. It counts for the log
// up to Until, at which the digest was made.
type syncKnown struct {
	Index   uint64   `cbor:"1,keyasint"`
	Until   uint64   `cbor:"2,keyasint"`
	Buckets []int    `cbor:"3,keyasint,omitempty"`
	Has     []uint64 `cbor:"4,keyasint,omitempty"` // crdt.Fingerprint.Short
}

// of makes the store's form of it; nothing is known of another log.
func (k *syncKnown) of(index uint64) store.Known {
	if k == nil || k.Index != index {
		return store.Known{}
	}
	out := store.Known{Until: k.Until, Differs: map[int]bool{}, Has: map[uint64]bool{}}
	for _, b := range k.Buckets {
		out.Differs[b] = true
	}
	for _, h := range k.Has {
		out.Has[h] = true
	}
	return out
}

func (a syncAsk) cursor() store.Cursor { return cursorOf(a.Index, a.Seq, a.Proof) }

func cursorOf(index, seq uint64, proof []byte) store.Cursor {
	c := store.Cursor{IndexID: index, Seq: seq}
	if len(proof) == len(c.Proof) {
		c.Proof = [16]byte(proof)
	}
	return c
}

// syncPage is one answer to a pull. The first one is empty but for what the two have
// to tell each other before any row changes hands. Membership rows come next and
// whole, so that every chain in them can be checked at once.
type syncPage struct {
	Index uint64 `cbor:"1,keyasint"`
	Next  uint64 `cbor:"2,keyasint"`
	More  bool   `cbor:"3,keyasint,omitempty"`
	Items []byte `cbor:"4,keyasint,omitempty"` // crdt.EncodeItems
	// Members says that these are membership rows outside of the log.
	Members bool `cbor:"5,keyasint,omitempty"`
	// KnownIndex and KnownSeq, of the first page, are how far the sender has pulled
	// from the asker.
	KnownIndex uint64 `cbor:"6,keyasint,omitempty"`
	KnownSeq   uint64 `cbor:"7,keyasint,omitempty"`
	// Away, of the first page: membership rows are all that comes, because one of the
	// two was away for too long.
	Away bool `cbor:"8,keyasint,omitempty"`
	// Money, of the first page, is what the sender knows of spending.
	Money *moneyTold `cbor:"9,keyasint,omitempty"`
	// Proof is kept with Next, and KnownProof is what came with KnownSeq: see proofs.
	Proof      []byte `cbor:"10,keyasint,omitempty"`
	KnownProof []byte `cbor:"11,keyasint,omitempty"`
}

// syncAck ends an offer.
type syncAck struct {
	Seq   uint64 `cbor:"1,keyasint"` // of the offering side's log, on the other's disk
	Proof []byte `cbor:"2,keyasint,omitempty"`
}

// serveSync answers one pull or takes one offer.
func (m *Mesh) serveSync(s *stream) {
	if err := m.answerSync(s); err != nil {
		m.refuse(s, protocolSync, err)
		return
	}
	s.Close()
}

func (m *Mesh) answerSync(s *stream) error {
	var ask syncAsk
	if err := m.readSync(s, &ask); err != nil {
		return err
	}
	switch ask.Kind {
	case askPull:
		return m.sendPages(s, ask)
	case askOffer:
		return m.takeOffer(s, ask)
	case askDigest, askBuckets, askRows:
		return m.answerDigest(s, ask)
	case askMoney:
		return m.money.answer(s, ask)
	}
	return fmt.Errorf("sync request of kind %d: %w", ask.Kind, errFrame)
}

func (m *Mesh) readSync(s *stream, v any) error {
	if err := s.SetReadDeadline(time.Now().Add(syncWait)); err != nil {
		return fmt.Errorf("bound sync: %w", err)
	}
	return readFrame(s, maxSync+frameHead, v)
}

func (m *Mesh) writeSync(s *stream, v any) error {
	if err := s.SetWriteDeadline(time.Now().Add(syncWait)); err != nil {
		return fmt.Errorf("bound sync: %w", err)
	}
	return writeFrame(s, v)
}

// sendPages gives the other side what it lacks, as far as the log knows. Before
// that it hears how far the other knows this log, and tells the same.
func (m *Mesh) sendPages(s *stream, ask syncAsk) error {
	v := m.view.Load()
	if string(ask.Mesh) != string(v.mesh[:]) {
		return errMeshReplaced
	}
	give, err := m.beginAnswer(s, ask)
	if err != nil {
		return err
	}
	index := m.store.IndexID()
	if err := m.sendMembers(s, ask, index); err != nil {
		return err
	}
	if !give {
		return m.writeSync(s, syncPage{Index: index})
	}
	seq := ask.Seq
	if ask.Index != index {
		seq = 0 // it knew another life of this store
	}
	known := ask.Known.of(index)
	for more := true; more; {
		page, err := m.store.SinceBut(seq, pageBytes, known)
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if page.IndexID != index {
			return errMeshReplaced
		}
		seq, more = page.Next, page.More
		m.absence.served(s.peer(), page)
		if err := m.sendPage(s, page); err != nil {
			return err
		}
		if m.view.Load().generation != v.generation || !m.view.Load().roster.active(s.peer()) {
			return ErrNotMember
		}
	}
	return nil
}

// beginAnswer sends the first page, and says whether others than membership rows
// follow.
func (m *Mesh) beginAnswer(s *stream, ask syncAsk) (give bool, err error) {
	h, err := s.greet()
	if err != nil {
		return false, err
	}
	if err := m.absence.acknowledged(s.peer(), ask.cursor()); err != nil {
		return false, err
	}
	terms, err := m.absence.meets(s.peer(), h)
	if err != nil {
		return false, err
	}
	known, err := m.store.Cursor(s.Peer())
	if err != nil {
		return false, fmt.Errorf("read cursor: %w", err)
	}
	give = terms.give && !ask.Membership
	money := m.money.told()
	return give, m.writeSync(s, syncPage{
		Index: m.store.IndexID(), More: true, KnownIndex: known.IndexID, KnownSeq: known.Seq, Away: !give, Money: &money,
		KnownProof: known.Proof[:],
	})
}

// sendPage sends a page of the log. A row that is too large for a frame goes in
// parts; the last one carries the cursor on.
func (m *Mesh) sendPage(s *stream, page store.Page) error {
	parts := crdt.Pack(page.Items, maxSync/2)
	if len(parts) == 0 {
		parts = [][]crdt.Item{nil}
	}
	for i, part := range parts {
		raw, err := crdt.EncodeItems(part)
		if err != nil {
			return fmt.Errorf("encode page: %w", err)
		}
		frame := syncPage{Index: page.IndexID, Items: raw, More: true}
		if i == len(parts)-1 {
			proof := m.proofs.of(s.peer(), page.IndexID, page.Next)
			frame.Next, frame.More, frame.Proof = page.Next, page.More, proof[:]
		}
		if err := m.writeSync(s, frame); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mesh) sendMembers(s *stream, ask syncAsk, index uint64) error {
	rows, err := m.store.List(nsMembers)
	if err != nil {
		return fmt.Errorf("read members: %w", err)
	}
	digest, err := digestRows(rows)
	if err != nil || string(digest) == string(ask.Roster) {
		return err
	}
	parts := crdt.Pack(rows, maxSync/2)
	for _, part := range parts {
		raw, err := crdt.EncodeItems(part)
		if err != nil {
			return fmt.Errorf("encode members: %w", err)
		}
		if err := m.writeSync(s, syncPage{Index: index, Items: raw, More: true, Members: true}); err != nil {
			return err
		}
	}
	return nil
}

func digestRows(rows []crdt.Item) ([]byte, error) {
	raw, err := crdt.EncodeItems(rows)
	if err != nil {
		return nil, fmt.Errorf("encode members: %w", err)
	}
	sum := sha256.Sum256(raw)
	return sum[:], nil
}
