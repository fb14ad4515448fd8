package crdt

import (
	"bytes"
	"fmt"
)

type wireMoney struct {
	_       struct{} `cbor:",toarray"`
	Spend   []wireSpend
	Folds   []wireFold
	Escrows []wireEscrowPart
}

type wireEscrowPart struct {
	_              struct{} `cbor:",toarray"`
	Budget, Period []byte
	Cells          []wireEscrow
}

// EncodeMoney encodes what stores tell each other of spending, in the order given.
func EncodeMoney(m Money) ([]byte, error) {
	w, err := wireOf(m)
	if err != nil {
		return nil, fmt.Errorf("encode money: %w", err)
	}
	return encode(w)
}

// DecodeMoney reads what EncodeMoney made: bounded as DecodeItems is, in canonical form only.
func DecodeMoney(data []byte) (Money, error) {
	var w wireMoney
	if len(data) > MaxMessageBytes {
		return Money{}, fmt.Errorf("decode money: %d bytes: %w", len(data), ErrTooLarge)
	}
	if err := decode(data, &w); err != nil {
		return Money{}, fmt.Errorf("decode money: %w", err)
	}
	m, err := w.money()
	if err != nil {
		return Money{}, fmt.Errorf("decode money: %w", err)
	}
	if again, err := EncodeMoney(m); err != nil || !bytes.Equal(again, data) {
		return Money{}, fmt.Errorf("decode money: not canonical: %w", ErrMalformed)
	}
	return m, nil
}

func wireOf(m Money) (w wireMoney, err error) {
	if w.Spend, err = eachOf(m.Spend, SpendEntry.wire); err != nil {
		return w, err
	}
	if w.Folds, err = eachOf(m.Folds, SpendFold.wire); err != nil {
		return w, err
	}
	w.Escrows, err = eachOf(m.Escrows, EscrowPart.wire)
	return w, err
}

func (w wireMoney) money() (m Money, err error) {
	if m.Spend, err = eachOf(w.Spend, wireSpend.entry); err != nil {
		return m, err
	}
	if m.Folds, err = eachOf(w.Folds, wireFold.fold); err != nil {
		return m, err
	}
	m.Escrows, err = eachOf(w.Escrows, wireEscrowPart.part)
	return m, err
}

func (p EscrowPart) wire() (w wireEscrowPart, err error) {
	w.Budget, w.Period = []byte(p.Account.Budget), []byte(p.Account.Period)
	if w.Cells, err = eachOf(p.Cells, EscrowEntry.wire); err != nil {
		return w, err
	}
	return w, checkCounts([][]byte{w.Budget, w.Period})
}

func (w wireEscrowPart) part() (p EscrowPart, err error) {
	p.Account = Account{string(w.Budget), string(w.Period)}
	if p.Cells, err = eachOf(w.Cells, wireEscrow.entry); err != nil {
		return p, err
	}
	return p, checkCounts([][]byte{w.Budget, w.Period})
}
