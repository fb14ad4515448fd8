package limits

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/mesh/catalog"

	"github.com/google/go-cmp/cmp"
)

func TestEachLevelBindsAndIsNamed(t *testing.T) {
	for level, rules := range map[string][3]catalog.Rules{
		LevelKey:     {limited(catalog.MetricRequests, 1), {}, {}},
		LevelProject: {{}, limited(catalog.MetricRequests, 1), {}},
		LevelTenant:  {{}, {}, limited(catalog.MetricRequests, 1)},
	} {
		t.Run(level, func(t *testing.T) {
			b := newBench()
			k := b.keyOf(rules[0], rules[1], rules[2])
			b.must(t, k, 0, 0)
			r := b.refused(t, k, 0, 0, level, "requests")
			name := map[string]string{LevelKey: "key name", LevelProject: "p", LevelTenant: "t"}[level]
			if r.Name != name || !strings.Contains(r.Error(), level) || !strings.Contains(r.Error(), "try again in ") || r.Quota {
				t.Errorf("refusal %+v says %q", r, r)
			}
		})
	}
}

func TestARefusalLeavesNoTrace(t *testing.T) {
	b := newBench()
	month := catalog.Rules{Limits: catalog.RateLimits{catalog.MetricTokens: 1000, catalog.MetricParallel: 5},
		Budgets: []catalog.Budget{{Period: catalog.PeriodMonth, Unit: catalog.UnitTokens, Amount: 1000}}}
	k := b.keyOf(month, month, limited(catalog.MetricRequests, 0))
	b.refused(t, k, 100, 100, LevelTenant, "requests")
	if left := b.holds(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	// The budget is looked at last, when all limits have passed.
	k = b.keyOf(month, catalog.Rules{Budgets: []catalog.Budget{{Period: catalog.PeriodDay, Unit: catalog.UnitTokens, Amount: 100}}}, catalog.Rules{})
	r := b.refused(t, k, 100, 100, LevelProject, "day/tokens")
	if left := b.holds(); len(left) > 0 || !r.Quota {
		t.Errorf("left: %v; %+v", left, r)
	}
}

func TestZeroBlocks(t *testing.T) {
	for _, metric := range catalog.Metrics() {
		b := newBench()
		r := b.refused(t, b.keyOf(limited(metric, 0), catalog.Rules{}, catalog.Rules{}), 0, 0, LevelKey, string(metric))
		if r.RetryAfter != 0 || !strings.Contains(r.Error(), "limit is 0") {
			t.Errorf("%s: waits %v: %v", metric, r.RetryAfter, r)
		}
	}
	b := newBench()
	zero := catalog.Rules{Budgets: []catalog.Budget{{Period: catalog.PeriodTotal, Unit: catalog.UnitMicros}}}
	b.refused(t, b.keyOf(zero, catalog.Rules{}, catalog.Rules{}), 0, 0, LevelKey, "total/micros")
}

// Each metric is counted under its own name, with its own figure.
func TestEachMetricCountsItsOwn(t *testing.T) {
	want := map[catalog.Metric]uint64{
		catalog.MetricRequests: 1, catalog.MetricInputTokens: 70, catalog.MetricOutputTokens: 30, catalog.MetricTokens: 100, catalog.MetricParallel: 0,
	}
	b := newBench()
	rules := catalog.Rules{Limits: catalog.RateLimits{}}
	for _, m := range catalog.Metrics() {
		rules.Limits[m] = 1000
	}
	b.must(t, b.keyOf(rules, catalog.Rules{}, catalog.Rules{}), 100, 200).Settle(used(70, 30))
	for metric, n := range want {
		m := b.meter(crdt.Meter{Limit: LevelKey, Subject: "k", Metric: string(metric)})
		if got := b.read(m, b.now()).taken; got != float64(n) {
			t.Errorf("%s: %v, want %d", metric, got, n)
		}
	}
}

func TestTheMinuteSlides(t *testing.T) {
	b := newBench() // 10 s into a minute
	k := b.keyOf(limited(catalog.MetricRequests, 10), catalog.Rules{}, catalog.Rules{})
	for range 10 {
		b.must(t, k, 0, 0).Settle(used(0, 0))
	}
	r := b.refused(t, k, 0, 0, LevelKey, "requests")
	if r.RetryAfter != 57*time.Second {
		t.Errorf("waits %v: at 6 s of the next minute a tenth of ten has passed, and the mesh's clock may be slow", r.RetryAfter)
	}
	b.pass(r.RetryAfter)
	b.must(t, k, 0, 0)
	b.refused(t, k, 0, 0, LevelKey, "requests")
}

// TestWhoWaitsAsToldIsNotRefusedAgain: at whatever part of a second it was used up, and
// although mesh time goes as slow as it may against the clock of the one who waits.
func TestWhoWaitsAsToldIsNotRefusedAgain(t *testing.T) {
	for at := time.Duration(0); at < 3*time.Second; at += 7 * time.Millisecond {
		b := newBench()
		k := b.keyOf(limited(catalog.MetricRequests, 4), catalog.Rules{}, catalog.Rules{})
		b.pass(at)
		for n := 0; n < 12; {
			g, err := b.admit(k, 0, 0)
			if err == nil {
				g.Settle(used(0, 0))
				n++
				continue
			}
			var r *Refusal
			if !errors.As(err, &r) {
				t.Fatal(err)
			}
			b.pass(r.RetryAfter - crdt.MaxSlew(r.RetryAfter))
			if g, err = b.admit(k, 0, 0); err != nil {
				t.Fatalf("used up from %v on: told to wait %v, and then: %v", at, r.RetryAfter, err)
			}
			g.Settle(used(0, 0))
			n++
		}
	}
}

func TestMoreThanEstimatedCountsWhenItIsKnown(t *testing.T) {
	b := newBench()
	k := b.keyOf(limited(catalog.MetricTokens, 1000), catalog.Rules{}, catalog.Rules{})
	g := b.must(t, k, 50, 50)
	b.pass(5 * time.Minute)
	g.Settle(used(50, 900))
	m := b.meter(crdt.Meter{Limit: LevelKey, Subject: "k", Metric: "tokens"})
	if got := b.read(m, b.now()).taken; got != 850 {
		t.Errorf("taken now: %v, want 850 of 950", got)
	}
	// Less than estimated makes room in the same minute.
	b.pass(3 * time.Minute)
	g = b.must(t, k, 500, 500)
	b.refused(t, k, 100, 0, LevelKey, "tokens")
	g.Settle(used(100, 0))
	b.must(t, k, 700, 0)
}

func TestALimitThatChangesKeepsItsCount(t *testing.T) {
	b := newBench()
	for range 5 {
		b.must(t, b.keyOf(limited(catalog.MetricRequests, 5), catalog.Rules{}, catalog.Rules{}), 0, 0).Settle(used(0, 0))
	}
	more := b.keyOf(limited(catalog.MetricRequests, 6), catalog.Rules{}, catalog.Rules{})
	b.must(t, more, 0, 0)
	b.refused(t, more, 0, 0, LevelKey, "requests")
}

func TestRequestsAtOnceEndOnEveryPath(t *testing.T) {
	for name, end := range map[string]func(*Grant){
		"settled":            func(g *Grant) { g.Settle(used(1, 1)) },
		"the client left":    func(g *Grant) { g.Settle(Outcome{Status: 499}) },
		"no engine got it":   func(g *Grant) { g.Release() },
		"ended twice":        func(g *Grant) { g.Settle(used(1, 1)); g.Release(); g.Settle(used(9, 9)) },
		"released, then all": func(g *Grant) { g.Release(); g.Settle(used(9, 9)); g.Release() },
	} {
		t.Run(name, func(t *testing.T) {
			for _, lasts := range []time.Duration{0, time.Minute, 20 * time.Minute} {
				b := newBench()
				k := b.keyOf(limited(catalog.MetricParallel, 2), catalog.Rules{}, catalog.Rules{})
				first, second := b.must(t, k, 0, 0), b.must(t, k, 0, 0)
				b.pass(lasts)
				b.refused(t, k, 0, 0, LevelKey, "parallel")
				end(first)
				third := b.must(t, k, 0, 0)
				b.refused(t, k, 0, 0, LevelKey, "parallel")
				end(second)
				end(third)
				if left := b.holds(); len(left) > 0 {
					t.Errorf("after %v: %v", lasts, left)
				}
			}
		})
	}
}

func TestWhatADeadHeadHoldsDoesNotCount(t *testing.T) {
	b, other := newBench(), newBench(func(c *Config) { c.Self, c.Peer = crdt.Incarnation{Replica: 2, Boot: 7}, "other" })
	b.heads = []Head{{Peer: "self"}, {Peer: "other"}}
	k := b.keyOf(limited(catalog.MetricParallel, 2), catalog.Rules{}, catalog.Rules{})
	other.keyOf(catalog.Rules{}, catalog.Rules{}, catalog.Rules{})
	other.must(t, k, 0, 0)
	other.must(t, k, 0, 0)
	other.Tick(other.now())
	for _, msg := range other.told {
		b.TakeSignal("other", msg)
	}
	b.refused(t, k, 0, 0, LevelKey, "parallel")
	b.Forget("other")
	b.heads = nil
	b.pass(time.Second)
	b.must(t, k, 0, 0)
	// It is not dead after all.
	for _, msg := range other.told {
		b.TakeSignal("other", msg)
	}
	b.refused(t, k, 0, 0, LevelKey, "parallel")
	// It was started anew, and what it held before has ended with it.
	again := newBench(func(c *Config) { c.Self, c.Peer = crdt.Incarnation{Replica: 2, Boot: 8}, "other" })
	again.must(t, again.keyOf(limited(catalog.MetricRequests, 5), catalog.Rules{}, catalog.Rules{}), 0, 0)
	again.Tick(again.now())
	for _, msg := range append(again.told, other.told...) {
		b.TakeSignal("other", msg)
	}
	b.must(t, k, 0, 0)
}

func TestNobodyCountsForAnother(t *testing.T) {
	b, other := newBench(), newBench(func(c *Config) { c.Self, c.Peer = crdt.Incarnation{Replica: 2, Boot: 1}, "other" })
	k := b.keyOf(limited(catalog.MetricRequests, 2), catalog.Rules{}, catalog.Rules{})
	other.keyOf(catalog.Rules{}, catalog.Rules{}, catalog.Rules{})
	other.must(t, k, 0, 0).Settle(used(0, 0))
	other.must(t, k, 0, 0).Settle(used(0, 0))
	other.Tick(other.now())
	b.heads = []Head{{Peer: "self"}, {Peer: "other"}, {Peer: "liar"}}
	b.pass(time.Second)
	b.TakeSignal("other", other.told[0])
	b.TakeSignal("liar", other.told[0])
	own := newBench(func(c *Config) { c.Peer = "liar" }) // counts as the head itself does
	own.must(t, own.keyOf(limited(catalog.MetricRequests, 2), catalog.Rules{}, catalog.Rules{}), 0, 0)
	own.Tick(own.now())
	b.TakeSignal("liar", own.told[0])
	b.TakeSignal("liar", []byte("nonsense"))
	if s := b.Stats(); s.Taken != 1 || s.Bad != 3 {
		t.Errorf("taken %d, bad %d; want 1 and 3", s.Taken, s.Bad)
	}
}

func TestAnAnswersLengthIsLearned(t *testing.T) {
	b := newBench()
	k := b.keyOf(limited(catalog.MetricOutputTokens, 1000), catalog.Rules{}, catalog.Rules{})
	free := k
	free.ID, free.Rules = "free", catalog.Rules{}
	b.must(t, k, 0, 1000).Release()
	for range minSamples {
		b.must(t, free, 0, 4096).Settle(used(0, 100))
	}
	for range 10 { // of 1000 each before it was known
		b.must(t, k, 0, 4096)
	}
	b.refused(t, k, 0, 4096, LevelKey, "output_tokens")
}

func TestHeadersTellTheLeast(t *testing.T) {
	b := newBench()
	k := b.keyOf(catalog.Rules{Limits: catalog.RateLimits{catalog.MetricRequests: 100, catalog.MetricTokens: 1000}},
		limited(catalog.MetricRequests, 10), limited(catalog.MetricInputTokens, 5000))
	h := http.Header{}
	b.must(t, k, 100, 100).Header(h)
	want := map[string]string{
		"X-Ratelimit-Limit-Requests": "10", "X-Ratelimit-Remaining-Requests": "9", "X-Ratelimit-Reset-Requests": "1m50s",
		"X-Ratelimit-Limit-Tokens": "1000", "X-Ratelimit-Remaining-Tokens": "800", "X-Ratelimit-Reset-Tokens": "1m50s",
	}
	got := map[string]string{}
	for name := range h {
		got[name] = h.Get(name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	h = http.Header{}
	(&Refusal{Level: LevelKey, Name: "k", Metric: "day/micros", Limit: 5, Used: 5, Quota: true, RetryAfter: time.Hour}).Header(h)
	if h.Get("X-Should-Retry") != "false" || h.Get("Retry-After") != "" {
		t.Errorf("a spent budget says %v", h)
	}
}

func TestMissingProjectIsRefused(t *testing.T) {
	b := newBench()
	k := b.keyOf(catalog.Rules{}, catalog.Rules{}, catalog.Rules{})
	delete(b.book.tenants, "t")
	b.refused(t, k, 0, 0, LevelTenant, MetricMissing)
	delete(b.book.projects, "p")
	b.refused(t, k, 0, 0, LevelProject, MetricMissing)
}

// allRules bounds everything, and nothing of it is reached in the test that uses it.
func allRules() catalog.Rules {
	r := catalog.Rules{Limits: catalog.RateLimits{}}
	for _, m := range catalog.Metrics() {
		r.Limits[m] = 1 << 40
	}
	for _, p := range catalog.Periods() {
		r.SetBudget(catalog.Budget{Period: p, Unit: catalog.UnitTokens, Amount: 1 << 40, Hard: true})
		r.SetBudget(catalog.Budget{Period: p, Unit: catalog.UnitMicros, Amount: 1 << 40, Hard: p == catalog.PeriodMonth})
	}
	return r
}

// Ten thousand requests that end in every way at every time leave all that they held.
// Ten thousand; a short run has a fifth of them.
func TestTenThousandCancelsLeaveNothingHeld(t *testing.T) {
	cancels := 10_000
	if testing.Short() {
		cancels = 2000
	}
	rights := &purse{left: 1 << 50}
	b := newBench(func(c *Config) { c.Rights = rights })
	b.book.prices["m"] = catalog.Price{Micros: map[catalog.PriceKind]uint64{catalog.PriceInput: 1_000_000, catalog.PriceOutput: 2_000_000}}
	k := b.keyOf(allRules(), allRules(), allRules())
	tight := k
	tight.ID, tight.Rules = "tight", catalog.Rules{Limits: catalog.RateLimits{catalog.MetricParallel: 3, catalog.MetricRequests: 200}}
	var spent, left, refused sync.Map
	var clients sync.WaitGroup
	for client := range 8 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(client), 1))
			for i := range cancels / 8 {
				key := k
				if rng.IntN(4) == 0 {
					key = tight
				}
				ctx, cancel := context.WithCancel(context.Background())
				if rng.IntN(10) == 0 {
					cancel() // it left before it was admitted
				}
				g, err := b.Admit(ctx, Request{Key: key, Model: "m", Estimate: openaiUsage(rng.Uint64N(500), rng.Uint64N(500))})
				cancel()
				if err != nil {
					refused.Store([2]int{client, i}, true)
					continue
				}
				if rng.IntN(50) == 0 {
					b.pass(time.Second)
				}
				switch rng.IntN(3) {
				case 0:
					g.Release()
					left.Store([2]int{client, i}, true)
				case 1:
					go g.Settle(used(rng.Uint64N(900), rng.Uint64N(900)))
					g.Settle(used(rng.Uint64N(900), rng.Uint64N(900)))
					spent.Store([2]int{client, i}, true)
				default:
					g.Settle(Outcome{Status: 499})
					g.Release()
					spent.Store([2]int{client, i}, true)
				}
			}
		})
	}
	clients.Wait()
	b.Close()
	if held := b.holds(); len(held) > 0 {
		t.Errorf("still held: %v", held)
	}
	size := func(m *sync.Map) (n int) { m.Range(func(any, any) bool { n++; return true }); return n }
	s := b.Stats()
	if s.InFlight != 0 || int(s.Settled) != size(&spent) {
		t.Errorf("in flight %d, settled %d of %d", s.InFlight, s.Settled, size(&spent))
	}
	if size(&spent) < cancels/10 || size(&left) < cancels/10 || size(&refused) < cancels/20 {
		t.Errorf("settled %d, released %d, refused %d: the test does not try every way", size(&spent), size(&left), size(&refused))
	}
	var tokens, micros uint64
	for _, r := range b.ledger.records {
		tokens += r.Usage.Input + r.Usage.Output
		micros += r.Micros
	}
	for _, level := range []string{LevelProject, LevelTenant} {
		id := level[:1]
		if got := b.ledger.Spent(AccountOf(level, id, catalog.UnitTokens, catalog.PeriodTotal, b.now())); got != tokens {
			t.Errorf("%s: %d tokens charged of %d", level, got, tokens)
		}
	}
	if len(b.ledger.records) != size(&spent) || micros == 0 {
		t.Errorf("%d records of %d", len(b.ledger.records), size(&spent))
	}
	t.Logf("settled %d, released %d, refused %d", size(&spent), size(&left), size(&refused))
}
