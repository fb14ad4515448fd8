package crdt

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Money is any part of what stores tell each other of spending: cells and folded accounts of budgets, and cells of the escrows of
// hard ones. Parts join in any order, in pieces or twice.
type Money struct {
	Spend   []SpendEntry
	Folds   []SpendFold
	Escrows []EscrowPart
}

// EscrowPart is some cells of the escrow of one account.
type EscrowPart struct {
	Account Account
	Cells   []EscrowEntry
}

// Empty says whether there is nothing in it.
func (m *Money) Empty() bool { return len(m.Spend)+len(m.Folds)+len(m.Escrows) == 0 }

// AddEscrow appends one cell.
func (m *Money) AddEscrow(a Account, e EscrowEntry) {
	if last := len(m.Escrows) - 1; last >= 0 && m.Escrows[last].Account == a {
		m.Escrows[last].Cells = append(m.Escrows[last].Cells, e)
		return
	}
	m.Escrows = append(m.Escrows, EscrowPart{Account: a, Cells: []EscrowEntry{e}})
}

const (
	// moneyHead is more than what the arrays and the account of one entry take beside its names and cells.
	moneyHead = 24
	// cellBytes is what three numbers take at most.
	cellBytes = 28
)

func (a Account) bytes() int { return moneyHead + len(a.Budget) + len(a.Period) }

// Pack cuts m into parts that encode to most bytes each, but for a single fold that is larger by itself. Escrows come first:
// spending of which the escrow is not known to count looks like a debt, see Escrow.Debts, and later parts may be lost.
func (m *Money) Pack(most int) []Money {
	var out []Money
	var part Money
	size := moneyHead
	room := func(n int) *Money {
		if size+n > most && !part.Empty() {
			out = append(out, part)
			part, size = Money{}, moneyHead
		}
		size += n
		return &part
	}
	for _, part := range m.Escrows {
		for _, e := range part.Cells {
			room(part.Account.bytes()+cellBytes).AddEscrow(part.Account, e)
		}
	}
	for _, e := range m.Spend {
		p := room(e.Account.bytes() + cellBytes)
		p.Spend = append(p.Spend, e)
	}
	for _, f := range m.Folds {
		p := room(f.Account.bytes() + cellBytes*len(f.Cells))
		p.Folds = append(p.Folds, f)
	}
	if !part.Empty() {
		out = append(out, part)
	}
	return out
}

// MoneyBuckets is the number of buckets of MoneySums.
const MoneyBuckets = 256

// MoneySums sums up what a store knows of spending: each bucket is the XOR of the hashes of the cells of the accounts that fall into
// it. A folded account has the sum of its cells, so that it does not matter who folded when.
type MoneySums [MoneyBuckets]uint64

// MoneyBucket says into which bucket an account falls.
func MoneyBucket(a Account) int {
	return int(xxhash.Sum64(appendAccount(nil, a)) % MoneyBuckets)
}

func appendAccount(b []byte, a Account) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(a.Budget))), a.Budget...)
	return append(binary.AppendUvarint(b, uint64(len(a.Period))), a.Period...)
}

// toggle lets one cell enter or leave; one that counts nothing is in no sum.
func (s *MoneySums) toggle(a Account, kind byte, from, to, micros uint64) {
	if micros == 0 {
		return
	}
	b := appendAccount(make([]byte, 0, 64), a)
	bucket := xxhash.Sum64(b) % MoneyBuckets
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(append(b, kind), from), to)
	s[bucket] ^= xxhash.Sum64(binary.BigEndian.AppendUint64(b, micros))
}

// ToggleSpend lets a spend cell enter, or leave again.
func (s *MoneySums) ToggleSpend(e SpendEntry) {
	s.toggle(e.Account, 's', uint64(e.By.Store), e.By.Generation, e.Micros)
}

// ToggleEscrow lets a cell of an escrow enter, or leave again.
func (s *MoneySums) ToggleEscrow(a Account, e EscrowEntry) {
	s.toggle(a, 'e', uint64(e.From), uint64(e.To), e.Micros)
}

// Total is one number for all; 0 stands for nothing at all.
func (s *MoneySums) Total() uint64 {
	if *s == (MoneySums{}) {
		return 0
	}
	return xxhash.Sum64(s.Encode())
}

const moneySumsBytes = 1 + 8*MoneyBuckets

// Encode gives a version byte and the buckets in order, 2 KiB.
func (s *MoneySums) Encode() []byte {
	data := append(make([]byte, 0, moneySumsBytes), encodingVersion)
	for _, sum := range s {
		data = binary.BigEndian.AppendUint64(data, sum)
	}
	return data
}

// DecodeMoneySums reads encoded sums. Errors are ErrVersion and ErrMalformed.
func DecodeMoneySums(data []byte) (MoneySums, error) {
	var s MoneySums
	if len(data) > 0 && data[0] != encodingVersion {
		return s, fmt.Errorf("decode sums of money: version %d: %w", data[0], ErrVersion)
	}
	if len(data) != moneySumsBytes {
		return s, fmt.Errorf("decode sums of money: %d bytes: %w", len(data), ErrMalformed)
	}
	for i := range s {
		s[i] = binary.BigEndian.Uint64(data[1+8*i:])
	}
	return s, nil
}
