package limits

import (
	"errors"
	"fmt"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/catalog"
	"llmgw/router/openai"

	"github.com/fxamacker/cbor/v2"
)

// recordVersion is the first byte of a usage record. What follows is a CBOR map with
// small integers as keys, to which later versions may add.
const recordVersion = 1

// ErrRecord is a usage record that cannot be read.
var ErrRecord = errors.New("no usage record")

// Record is what is kept of one request: never its text.
type Record struct {
	Time     int64  `cbor:"1,keyasint"` // unix milliseconds, of its end
	Key      string `cbor:"2,keyasint"` // ID
	KeyName  string `cbor:"3,keyasint,omitempty"`
	Project  string `cbor:"4,keyasint,omitempty"`
	Tenant   string `cbor:"5,keyasint,omitempty"`
	Model    string `cbor:"6,keyasint,omitempty"`
	Node     string `cbor:"7,keyasint,omitempty"` // peer ID of the node that served it
	Provider string `cbor:"8,keyasint,omitempty"`
	Usage    openai.Usage
	Micros   uint64 `cbor:"10,keyasint,omitempty"` // what it costs
	Status   int    `cbor:"11,keyasint,omitempty"` // HTTP
	Millis   int64  `cbor:"12,keyasint,omitempty"` // how long it took
}

type wireRecord struct {
	Record
	Usage [7]uint64 `cbor:"9,keyasint"`
	// Source tells how the usage is known.
	Source string `cbor:"13,keyasint,omitempty"`
}

// Encode writes a record.
func (r Record) Encode() ([]byte, error) {
	w := wireRecord{Record: r, Source: string(r.Usage.Source), Usage: packUsage(r.Usage)}
	w.Record.Usage = openai.Usage{}
	body, err := cbor.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("encode usage record: %w", err)
	}
	return append([]byte{recordVersion}, body...), nil
}

// DecodeRecord reads a record; ErrRecord.
func DecodeRecord(data []byte) (Record, error) {
	if len(data) == 0 || data[0] != recordVersion {
		return Record{}, fmt.Errorf("version: %w", ErrRecord)
	}
	var w wireRecord
	if err := cbor.Unmarshal(data[1:], &w); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	w.Record.Usage = unpackUsage(w.Usage)
	w.Record.Usage.Source = openai.UsageSource(w.Source)
	return w.Record, nil
}

func packUsage(u openai.Usage) [7]uint64 {
	return [7]uint64{u.Input, u.Cached, u.CacheWrite, u.Output, u.AudioIn, u.AudioOut, u.Images}
}

func unpackUsage(u [7]uint64) openai.Usage {
	return openai.Usage{Input: u[0], Cached: u[1], CacheWrite: u[2], Output: u[3], AudioIn: u[4], AudioOut: u[5], Images: u[6]}
}

// record writes what was used and charges it, apart from the request: it may be gone.
func (g *Grant) record(o Outcome, now time.Time) {
	r := Record{
		Time: now.UnixMilli(), Key: g.req.Key.ID, KeyName: g.req.Key.Name, Model: o.Model, Node: o.Node, Provider: o.Provider,
		Usage: o.Usage, Micros: g.l.cost(o.Model, o.Provider, o.Usage), Status: o.Status, Millis: now.Sub(g.at).Milliseconds(),
	}
	for _, s := range g.subjects {
		switch s.level {
		case LevelProject:
			r.Project = s.id
		case LevelTenant:
			r.Tenant = s.id
		}
	}
	u := store.Usage{Charges: g.charges(r)}
	var err error
	if u.Record, err = r.Encode(); err != nil {
		g.l.cfg.Log.Error("usage is charged without a record", "error", err)
	}
	g.l.mu.Lock()
	g.l.recording++
	g.l.mu.Unlock()
	go g.keep(u, r)
}

// charges counts the usage for everybody whom it counts for. Months and the total are
// counted whether a budget is set or not: one that is set later begins with what was
// spent. Days are many, and are counted where a budget of a day is set.
func (g *Grant) charges(r Record) []store.Charge {
	units := [...]struct {
		unit   catalog.Unit
		amount uint64
	}{{catalog.UnitMicros, min(r.Micros, crdt.MaxAmount)}, {catalog.UnitTokens, min(add(r.Usage.Input, r.Usage.Output), crdt.MaxAmount)}}
	var out []store.Charge
	for _, s := range g.subjects {
		for _, u := range units {
			if u.amount == 0 {
				continue
			}
			for _, p := range catalog.Periods() {
				if _, set := s.rules.Budget(p, u.unit); set || p != catalog.PeriodDay {
					a := AccountOf(s.level, s.id, u.unit, p, g.at)
					out = append(out, store.Charge{Account: a, Micros: u.amount, Reserved: g.tookRights(a)})
				}
			}
		}
	}
	return out
}

// tries is how often a record is offered to a disk that refuses it.
const tries = 3

// keep writes the record. What was set aside is given back only then, so that no
// request sees a budget without either.
func (g *Grant) keep(u store.Usage, r Record) {
	var err error
	for try := range tries {
		if err = g.l.cfg.Ledger.RecordUsage(u); err == nil || errors.Is(err, store.ErrFailed) {
			break // a store that failed will not come back, and counting twice is no better
		}
		if try < tries-1 {
			time.Sleep(time.Duration(try+1) * time.Second)
		}
	}
	if err != nil {
		g.l.stats.lost.Add(1)
		g.l.cfg.Log.Error("usage was not written", "key", r.Key, "model", r.Model, "error", err)
	}
	g.l.mu.Lock()
	all := g.aside
	g.l.unset(all)
	g.aside = nil
	g.l.mu.Unlock()
	defer g.l.recorded()
	g.giveRights(all, map[catalog.Unit]uint64{catalog.UnitMicros: r.Micros, catalog.UnitTokens: add(r.Usage.Input, r.Usage.Output)})
}

func (l *Limiter) recorded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recording--
	l.ended.Broadcast()
}
