package crdt

import (
	"bytes"
	"fmt"
)

type wireWindow struct {
	_                      struct{} `cbor:",toarray"`
	Limit, Subject, Metric []byte
	Window                 int64
	Replica, Boot          uint64
	Used, Up, Down         uint64
}

type wireSpend struct {
	_                 struct{} `cbor:",toarray"`
	Budget, Period    []byte
	Store, Generation uint64
	Micros            uint64
}

type wireFold struct {
	_              struct{} `cbor:",toarray"`
	Budget, Period []byte
	Cells          []wireSpendCell
}

type wireSpendCell struct {
	_                 struct{} `cbor:",toarray"`
	Store, Generation uint64
	Micros            uint64
}

type wireEscrow struct {
	_        struct{} `cbor:",toarray"`
	From, To uint64
	Micros   uint64
}

// EncodeWindows encodes counts of rate windows in the order given.
func EncodeWindows(entries []WindowEntry) ([]byte, error) {
	return encodeAll(entries, func(e WindowEntry) (wireWindow, error) {
		w := wireWindow{
			Limit: []byte(e.Meter.Limit), Subject: []byte(e.Meter.Subject), Metric: []byte(e.Meter.Metric), Window: e.Window,
			Replica: uint64(e.By.Replica), Boot: e.By.Boot, Used: e.Count.Used, Up: e.Count.Up, Down: e.Count.Down,
		}
		return w, checkCounts(w.names(), w.Used, w.Up, w.Down)
	})
}

// DecodeWindows reads counts from outside: bounded as DecodeItems is, in canonical form only.
func DecodeWindows(data []byte) ([]WindowEntry, error) {
	return decodeAll(data, func(w wireWindow) (WindowEntry, error) {
		return WindowEntry{
			Meter: Meter{string(w.Limit), string(w.Subject), string(w.Metric)}, Window: w.Window,
			By: Incarnation{ReplicaID(w.Replica), w.Boot}, Count: WindowCount{w.Used, w.Up, w.Down},
		}, checkCounts(w.names(), w.Used, w.Up, w.Down)
	})
}

func (w wireWindow) names() [][]byte { return [][]byte{w.Limit, w.Subject, w.Metric} }

func (e SpendEntry) wire() (wireSpend, error) {
	w := wireSpend{
		Budget: []byte(e.Account.Budget), Period: []byte(e.Account.Period), Store: uint64(e.By.Store),
		Generation: e.By.Generation, Micros: e.Micros,
	}
	return w, checkCounts([][]byte{w.Budget, w.Period}, w.Micros)
}

func (w wireSpend) entry() (SpendEntry, error) {
	return SpendEntry{
		Account: Account{string(w.Budget), string(w.Period)}, By: SpendID{ReplicaID(w.Store), w.Generation}, Micros: w.Micros,
	}, checkCounts([][]byte{w.Budget, w.Period}, w.Micros)
}

// EncodeFolds encodes folded accounts in the order given.
func EncodeFolds(folds []SpendFold) ([]byte, error) { return encodeAll(folds, SpendFold.wire) }

// DecodeFolds reads folded accounts from outside.
func DecodeFolds(data []byte) ([]SpendFold, error) { return decodeAll(data, wireFold.fold) }

func (f SpendFold) wire() (wireFold, error) {
	w := wireFold{Budget: []byte(f.Account.Budget), Period: []byte(f.Account.Period), Cells: make([]wireSpendCell, len(f.Cells))}
	for i, c := range f.Cells {
		w.Cells[i] = wireSpendCell{Store: uint64(c.By.Store), Generation: c.By.Generation, Micros: c.Micros}
	}
	return w, w.check()
}

func (w wireFold) fold() (SpendFold, error) {
	f := SpendFold{Account: Account{string(w.Budget), string(w.Period)}, Cells: make([]SpendCell, len(w.Cells))}
	for i, c := range w.Cells {
		f.Cells[i] = SpendCell{By: SpendID{ReplicaID(c.Store), c.Generation}, Micros: c.Micros}
	}
	return f, w.check()
}

// check bounds a fold, and sees that each writer is there once and in order.
func (w wireFold) check() error {
	if len(w.Cells) > MaxFold {
		return fmt.Errorf("fold of %d writers: %w", len(w.Cells), ErrTooLarge)
	}
	if err := checkCounts([][]byte{w.Budget, w.Period}); err != nil {
		return err
	}
	for i, c := range w.Cells {
		if c.Micros == 0 || c.Micros > MaxAmount {
			return fmt.Errorf("count %d in a fold: %w", c.Micros, ErrMalformed)
		}
		if i > 0 && w.Cells[i-1].by().compare(c.by()) >= 0 {
			return fmt.Errorf("fold out of order: %w", ErrMalformed)
		}
	}
	return nil
}

func (c wireSpendCell) by() SpendID { return SpendID{ReplicaID(c.Store), c.Generation} }

func (e EscrowEntry) wire() (wireEscrow, error) {
	return wireEscrow{From: uint64(e.From), To: uint64(e.To), Micros: e.Micros}, checkCounts(nil, e.Micros)
}

func (w wireEscrow) entry() (EscrowEntry, error) {
	return EscrowEntry{From: ReplicaID(w.From), To: ReplicaID(w.To), Micros: w.Micros}, checkCounts(nil, w.Micros)
}

// checkCounts bounds names and numbers the same way on both sides.
func checkCounts(names [][]byte, counts ...uint64) error {
	for _, name := range names {
		if len(name) > MaxNameBytes {
			return fmt.Errorf("name of %d bytes: %w", len(name), ErrTooLarge)
		}
	}
	for _, n := range counts {
		if n > MaxAmount {
			return fmt.Errorf("count %d: %w", n, ErrTooLarge)
		}
	}
	return nil
}

func encodeAll[E, W any](entries []E, wire func(E) (W, error)) ([]byte, error) {
	all, err := eachOf(entries, wire)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return encode(all)
}

func decodeAll[E, W any](data []byte, entry func(W) (E, error)) ([]E, error) {
	if len(data) > MaxMessageBytes {
		return nil, fmt.Errorf("decode entries: %d bytes: %w", len(data), ErrTooLarge)
	}
	var wire []W
	if err := decode(data, &wire); err != nil {
		return nil, fmt.Errorf("decode entries: %w", err)
	}
	entries, err := eachOf(wire, entry)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if again, err := encode(wire); err != nil || !bytes.Equal(again, data) {
		return nil, fmt.Errorf("decode entries: not canonical: %w", ErrMalformed)
	}
	return entries, nil
}

func eachOf[A, B any](all []A, of func(A) (B, error)) ([]B, error) {
	out := make([]B, len(all))
	for i, a := range all {
		var err error
		if out[i], err = of(a); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return out, nil
}
