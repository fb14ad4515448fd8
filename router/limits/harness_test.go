package limits

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/catalog"
	"llmgw/router/keys"
	"llmgw/router/openai"
)

// ledger keeps charges in memory; hold lets writes wait, err has them fail.
type ledger struct {
	mu    sync.Mutex
	spent map[crdt.Account]uint64
	// reserved is what of that was.
	reserved map[crdt.Account]uint64
	records  []Record
	err      error
	hold     chan struct{}
}

func newLedger() *ledger {
	return &ledger{spent: map[crdt.Account]uint64{}, reserved: map[crdt.Account]uint64{}}
}

func (l *ledger) RecordUsage(u store.Usage) error {
	if l.hold != nil {
		<-l.hold
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	r, err := DecodeRecord(u.Record)
	if err != nil {
		return err
	}
	l.records = append(l.records, r)
	for _, c := range u.Charges {
		l.spent[c.Account] += c.Micros
		if c.Reserved {
			l.reserved[c.Account] += c.Micros
		}
	}
	return nil
}

func (l *ledger) Spent(a crdt.Account) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spent[a]
}

// purse is Rights of one amount.
type purse struct {
	mu    sync.Mutex
	left  uint64
	over  uint64
	spent []crdt.Account // without rights
}

func (p *purse) Take(_ context.Context, _ crdt.Account, _, amount uint64) (func(uint64), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if amount > p.left {
		return nil, errors.New("none left")
	}
	p.left -= amount
	return func(used uint64) { p.settle(amount, used) }, nil
}

func (p *purse) Spent(a crdt.Account) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent = append(p.spent, a)
}

func (p *purse) settle(amount, used uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left += amount - min(used, amount)
	p.over += used - min(used, amount)
}

// bench is one head with a clock that tests set.
type bench struct {
	*Limiter
	mu     sync.Mutex
	time   time.Time
	book   fixedBook
	ledger *ledger
	heads  []Head
	told   [][]byte
}

func newBench(change ...func(*Config)) *bench {
	b := &bench{time: simStart.Add(10 * time.Second), ledger: newLedger(), heads: []Head{{Peer: "self"}}}
	b.book = fixedBook{map[string]catalog.Project{}, map[string]catalog.Tenant{}, map[string]catalog.Price{}}
	cfg := Config{
		Self: crdt.Incarnation{Replica: 1, Boot: 1}, Peer: "self", Now: b.now, Book: b.book, Ledger: b.ledger,
		Heads: func() []Head { return b.heads }, Publish: b.publish,
	}
	for _, fn := range change {
		fn(&cfg)
	}
	b.Limiter = New(cfg)
	return b
}

func (b *bench) publish(msg []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, msg)
}

func (b *bench) now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.time
}

// pass lets time go by, ticking.
func (b *bench) pass(d time.Duration) {
	for end := b.now().Add(d); b.now().Before(end); {
		b.mu.Lock()
		b.time = b.time.Add(min(end.Sub(b.time), time.Second))
		b.mu.Unlock()
		b.Tick(b.now())
	}
}

// keyOf is a key with limits in a project of a tenant, each named after its level.
func (b *bench) keyOf(key, project, tenant catalog.Rules) keys.Info {
	b.book.tenants["t"] = catalog.Tenant{ID: "t", Rules: tenant}
	b.book.projects["p"] = catalog.Project{ID: "p", Tenant: "t", Rules: project}
	return keys.Info{ID: "k", Name: "key name", Project: "p", Rules: key}
}

func limited(m catalog.Metric, n uint64) catalog.Rules {
	return catalog.Rules{Limits: catalog.RateLimits{m: n}}
}

func (b *bench) admit(k keys.Info, input, output uint64) (*Grant, error) {
	return b.Admit(context.Background(), Request{Key: k, Model: "m", Estimate: openai.Usage{Input: input, Output: output}})
}

// must admits, or fails the test.
func (b *bench) must(t *testing.T, k keys.Info, input, output uint64) *Grant {
	t.Helper()
	g, err := b.admit(k, input, output)
	if err != nil {
		t.Fatalf("not admitted: %v", err)
	}
	return g
}

// refused has to be refused at a level for a metric.
func (b *bench) refused(t *testing.T, k keys.Info, input, output uint64, level, metric string) *Refusal {
	t.Helper()
	g, err := b.admit(k, input, output)
	var r *Refusal
	if !errors.As(err, &r) || g != nil {
		t.Fatalf("admitted, or failed otherwise: %v", err)
	}
	if r.Level != level || r.Metric != metric {
		t.Fatalf("refused at %s for %s (%v), want %s for %s", r.Level, r.Metric, r, level, metric)
	}
	return r
}

// holds is what is held of anything, by whom.
func (b *bench) holds() (out []string) {
	b.Limiter.mu.Lock()
	defer b.Limiter.mu.Unlock()
	for name, m := range b.meters {
		for _, p := range m.panes {
			if p.held() != 0 || p.set.Held(name, func(crdt.Incarnation) bool { return true }) != 0 {
				out = append(out, fmt.Sprintf("%v holds %d", name, p.held()))
			}
		}
	}
	for a, n := range b.pending {
		out = append(out, fmt.Sprintf("%v set aside %d", a, n))
	}
	return out
}

func used(input, output uint64) Outcome {
	return Outcome{Usage: openai.Usage{Input: input, Output: output, Source: openai.UsageEngine}, Status: 200, Node: "self", Model: "m"}
}
