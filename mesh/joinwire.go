package mesh

import (
	"errors"
	"fmt"
	"time"
	"unicode"

	"llmgw/mesh/token"
)

// A join is four frames on a stream of a guest:
//
//	joiner                           member
//	ask: mesh, nonce            ->
//	                            <-   offer: chain to the genesis, nonce
//	(checks the chain against the mesh that it has pinned)
//	proof: token ID, signature,
//	  or a record by the genesis key ->
//	                            <-   answer: signed record, the membership rows
//
// Nothing that could help a stranger leaves the joiner before the chain holds, and
// a member tells a stranger nothing but why not.

// joinWait bounds each frame of a join.
const joinWait = 8 * time.Second

// Ways to be admitted.
const (
	byToken  = "token"
	bySecret = "secret"
)

// nonceSize is the length of each side's nonce in bytes.
const nonceSize = 32

type joinAsk struct {
	Mesh  []byte `cbor:"1,keyasint"`
	Nonce []byte `cbor:"2,keyasint"`
	By    string `cbor:"3,keyasint"`
}

type joinOffer struct {
	Refused *refusal `cbor:"1,keyasint,omitempty"`
	Chain   [][]byte `cbor:"2,keyasint,omitempty"` // signed records, the member's own first
	Nonce   []byte   `cbor:"3,keyasint,omitempty"`
	Floor   uint64   `cbor:"4,keyasint,omitempty"` // highest serial that the joiner ever had here
}

type joinProof struct {
	Token  []byte `cbor:"1,keyasint,omitempty"` // token ID
	Proof  []byte `cbor:"2,keyasint,omitempty"` // signature over the transcript by the token's key
	Record []byte `cbor:"3,keyasint,omitempty"` // by secret: the joiner's own record
}

type joinAnswer struct {
	Refused *refusal `cbor:"1,keyasint,omitempty"`
	Rows    []byte   `cbor:"2,keyasint,omitempty"` // crdt.EncodeItems of all membership rows
}

// refusal is a token.Error on its way to the joiner.
type refusal struct {
	Kind   string `cbor:"1,keyasint"`
	Detail string `cbor:"2,keyasint,omitempty"`
	Ago    int64  `cbor:"3,keyasint,omitempty"` // seconds
}

func (r *refusal) err() error {
	return &token.Error{
		Kind: token.Kind(cleanName(r.Kind)), Detail: cleanDetail(r.Detail), Ago: time.Duration(min(max(r.Ago, 0), maxUptime)) * time.Second,
	}
}

// maxDetail bounds words from another box, in characters.
const maxDetail = 200

// cleanDetail makes words from another box fit to be shown: nothing in them moves a
// terminal's cursor or turns the text around.
func cleanDetail(s string) string {
	out := make([]rune, 0, min(len(s), maxDetail))
	for _, r := range s {
		if len(out) == maxDetail {
			break
		}
		if unicode.IsPrint(r) {
			out = append(out, r)
		}
	}
	return string(out)
}

// refusalOf is what a joiner is told of an error: its kind when it has one, and
// of faults of our own only that there was one.
func refusalOf(err error) *refusal {
	var typed *token.Error
	if errors.As(err, &typed) {
		return &refusal{Kind: string(typed.Kind), Detail: typed.Detail, Ago: int64(typed.Ago / time.Second)}
	}
	return &refusal{Kind: string(token.Refused), Detail: "the other box had a fault of its own; its log says which"}
}

func (s *stream) readJoin(v any) error {
	if err := s.SetReadDeadline(time.Now().Add(joinWait)); err != nil {
		return fmt.Errorf("bound join: %w", err)
	}
	return readFrame(s, maxJoin, v)
}

func (s *stream) writeJoin(v any) error {
	if err := s.SetWriteDeadline(time.Now().Add(joinWait)); err != nil {
		return fmt.Errorf("bound join: %w", err)
	}
	return writeFrame(s, v)
}
