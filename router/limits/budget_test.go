package limits

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"llmgw/crdt"
	"llmgw/mesh/catalog"
	"llmgw/router/openai"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func openaiUsage(input, output uint64) openai.Usage {
	return openai.Usage{Input: input, Output: output}
}

func budget(p catalog.Period, u catalog.Unit, amount uint64) catalog.Rules {
	return catalog.Rules{Budgets: []catalog.Budget{{Period: p, Unit: u, Amount: amount}}}
}

// All at once ask for a budget that is enough for some: what is admitted fits, also
// while nothing of it is on disk yet.
func TestABudgetIsSetAsideAtAdmission(t *testing.T) {
	b := newBench()
	b.ledger.hold = make(chan struct{})
	k := b.keyOf(catalog.Rules{}, budget(catalog.PeriodDay, catalog.UnitTokens, 1000), catalog.Rules{})
	var mu sync.Mutex
	admitted := 0
	var clients sync.WaitGroup
	for range 50 {
		clients.Go(func() {
			g, err := b.admit(k, 60, 40)
			if err != nil {
				return
			}
			mu.Lock()
			admitted++
			mu.Unlock()
			g.Settle(used(60, 40))
		})
	}
	clients.Wait()
	if admitted != 10 {
		t.Errorf("admitted %d of 100 tokens each with a budget of 1000", admitted)
	}
	close(b.ledger.hold)
	b.Close()
	r := b.refused(t, k, 1, 0, LevelProject, "day/tokens")
	if !r.Quota || r.Used != 1000 || r.RetryAfter <= 0 || r.RetryAfter > 24*time.Hour {
		t.Errorf("refusal %+v", r)
	}
}

func TestABudgetSetLaterBeginsWithWhatWasSpent(t *testing.T) {
	b := newBench()
	b.must(t, b.keyOf(catalog.Rules{}, catalog.Rules{}, catalog.Rules{}), 500, 0).Settle(used(500, 0))
	b.Close()
	for _, period := range []catalog.Period{catalog.PeriodMonth, catalog.PeriodTotal} {
		k := b.keyOf(catalog.Rules{}, catalog.Rules{}, budget(period, catalog.UnitTokens, 600))
		b.refused(t, k, 101, 0, LevelTenant, string(period)+"/tokens")
		b.must(t, k, 100, 0).Release()
	}
}

// Days are charged where a budget of a day is set, and nowhere else: there would be one
// more account of each key, project and tenant every day.
func TestDaysAreCountedForBudgetsOfDaysAlone(t *testing.T) {
	b := newBench()
	k := b.keyOf(catalog.Rules{}, budget(catalog.PeriodDay, catalog.UnitTokens, 1000), catalog.Rules{})
	b.must(t, k, 500, 0).Settle(used(500, 0))
	b.Close()
	periods := map[string]int{}
	for a, n := range b.ledger.spent {
		if n != 500 {
			t.Errorf("%v: %d", a, n)
		}
		periods[a.Period]++
		if _, month := a.MonthOf(); month && len(a.Period) == len("2026-11-30") && a.Budget != accountName(LevelProject, "p", catalog.UnitTokens) {
			t.Errorf("a day is charged to %s", a.Budget)
		}
	}
	if len(b.ledger.spent) != 3*2+1 || periods["total"] != 3 {
		t.Errorf("charged %v", b.ledger.spent)
	}
}

// The budget that an account is counted on is found again, of whatever period.
func TestBudgetsAreFoundByTheirAccounts(t *testing.T) {
	at := time.Date(2026, 11, 30, 1, 0, 0, 0, time.UTC)
	var rules catalog.Rules
	for i, p := range catalog.Periods() {
		for j, u := range []catalog.Unit{catalog.UnitMicros, catalog.UnitTokens} {
			rules.SetBudget(catalog.Budget{Period: p, Unit: u, Amount: uint64(10*i + j + 1), Hard: true})
		}
	}
	find := func(level, id string) (catalog.Rules, bool, error) {
		return rules, level == LevelTenant && id == "acme", nil
	}
	for _, want := range rules.Budgets {
		a := AccountOf(LevelTenant, "acme", want.Unit, want.Period, at)
		if got, ok, err := BudgetOf(a, find); !ok || err != nil || got != want {
			t.Errorf("%v: %+v, %t, %v", a, got, ok, err)
		}
	}
	for _, a := range []crdt.Account{{}, {Budget: "tenant:acme"}, {Budget: "tenant:acme:gold", Period: "total"}, AccountOf(LevelKey, "acme", catalog.UnitMicros, catalog.PeriodMonth, at)} {
		if got, ok, err := BudgetOf(a, find); ok || err != nil {
			t.Errorf("%v: %+v, %v", a, got, err)
		}
	}
}

func TestABudgetBeginsAnewWithItsPeriod(t *testing.T) {
	b := newBench()
	k := b.keyOf(budget(catalog.PeriodDay, catalog.UnitTokens, 100), catalog.Rules{}, catalog.Rules{})
	b.must(t, k, 100, 0).Settle(used(100, 0))
	b.Close()
	r := b.refused(t, k, 1, 0, LevelKey, "day/tokens")
	b.mu.Lock()
	b.time = b.time.Add(r.RetryAfter)
	b.mu.Unlock()
	b.must(t, k, 100, 0)
}

// What peers spent raises what counts as spent here.
func TestWhatPeersSpentCounts(t *testing.T) {
	b := newBench()
	k := b.keyOf(catalog.Rules{}, catalog.Rules{}, budget(catalog.PeriodMonth, catalog.UnitTokens, 1000))
	b.must(t, k, 100, 0).Release()
	b.ledger.mu.Lock()
	b.ledger.spent[AccountOf(LevelTenant, "t", catalog.UnitTokens, catalog.PeriodMonth, b.now())] = 950
	b.ledger.mu.Unlock()
	b.refused(t, k, 100, 0, LevelTenant, "month/tokens")
}

func TestHardBudgetsNeedRights(t *testing.T) {
	rights := &purse{left: 250}
	b := newBench(func(c *Config) { c.Rights = rights })
	hard := budget(catalog.PeriodMonth, catalog.UnitTokens, 10_000)
	hard.Budgets[0].Hard = true
	k := b.keyOf(hard, limited(catalog.MetricRequests, 100), catalog.Rules{})
	first := b.must(t, k, 100, 100)
	b.refused(t, k, 60, 0, LevelKey, "month/tokens")
	second := b.must(t, k, 50, 0)
	second.Release()
	first.Settle(used(100, 20))
	b.Close()
	if rights.left != 130 {
		t.Errorf("%d rights left, want 250 - 120", rights.left)
	}
	third := b.must(t, k, 130, 0)
	third.Settle(used(130, 70))
	b.Close()
	if rights.left != 0 || rights.over != 70 {
		t.Errorf("%d left, %d overdrawn; want 0 and 70", rights.left, rights.over)
	}
	if left := b.holds(); len(left) > 0 {
		t.Errorf("still held: %v", left)
	}
}

// What a request spends is counted by whom it took rights from, and by the ledger when it took none: as the budget was when
// the request came, whatever it is when it ends.
func TestABudgetThatChangesWhileRequestsRun(t *testing.T) {
	rights := &purse{left: 1000}
	b := newBench(func(c *Config) { c.Rights = rights })
	soft := b.keyOf(budget(catalog.PeriodMonth, catalog.UnitTokens, 10_000), catalog.Rules{}, catalog.Rules{})
	hard := soft
	hard.Rules = budget(catalog.PeriodMonth, catalog.UnitTokens, 10_000)
	hard.Rules.Budgets[0].Hard = true
	account := AccountOf(LevelKey, "k", catalog.UnitTokens, catalog.PeriodMonth, b.now())
	ends := b.must(t, hard, 100, 0) // while it is soft
	b.must(t, soft, 300, 0).Settle(used(300, 0))
	ends.Settle(used(100, 0))
	ends = b.must(t, soft, 500, 0) // while it is hard again
	b.must(t, hard, 200, 0).Settle(used(200, 50))
	ends.Settle(used(500, 0))
	b.Close()
	if b.ledger.spent[account] != 1150 || b.ledger.reserved[account] != 350 {
		t.Errorf("spent %d, of which %d were reserved; want 1150 and 350", b.ledger.spent[account], b.ledger.reserved[account])
	}
	if rights.left != 700 || rights.over != 50 || !slices.Equal(rights.spent, []crdt.Account{account, account}) {
		t.Errorf("%d left, %d overdrawn, without rights on %v; want 700, 50 and two on %v", rights.left, rights.over, rights.spent, account)
	}
}

func TestAUsageThatCannotBeWrittenIsSaid(t *testing.T) { synctest.Test(t, unwritten) }

func unwritten(t *testing.T) {
	b := newBench()
	b.ledger.err = errors.New("no space")
	k := b.keyOf(budget(catalog.PeriodDay, catalog.UnitTokens, 100), catalog.Rules{}, catalog.Rules{})
	g := b.must(t, k, 100, 0)
	g.Settle(used(100, 0))
	b.refused(t, k, 1, 0, LevelKey, "day/tokens") // while it is tried again
	b.Close()
	if s := b.Stats(); s.Lost != 1 {
		t.Errorf("%d records lost, want 1", s.Lost)
	}
	if left := b.holds(); len(left) > 0 {
		t.Errorf("still held: %v", left)
	}
}

func TestPeriodsHaveOneName(t *testing.T) {
	at := time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC)
	for period, want := range map[catalog.Period]string{catalog.PeriodDay: "2026-11-30", catalog.PeriodMonth: "2026-11", catalog.PeriodTotal: "total"} {
		for _, zone := range []*time.Location{time.UTC, time.FixedZone("east", 5*3600), time.FixedZone("west", -8*3600)} {
			if got := AccountOf(LevelKey, "k", catalog.UnitMicros, period, at.In(zone)); got.Period != want || got.Budget != "key:k:micros" {
				t.Errorf("%s in %s: %+v, want %s", period, zone, got, want)
			}
		}
	}
	if got := untilNext(catalog.PeriodDay, at); got != time.Second {
		t.Errorf("the next day begins in %v", got)
	}
	if got := untilNext(catalog.PeriodMonth, at); got != time.Second {
		t.Errorf("the next month begins in %v", got)
	}
	for period, want := range map[string]bool{"2026-11-30": false, "2026-11-29": true, "2026-11": false, "2026-10": true, "total": false, "2026-13": false, "": false} {
		if got := Closed(crdt.Account{Budget: "key:k:micros", Period: period}, at); got != want {
			t.Errorf("%q closed: %t, want %t", period, got, want)
		}
	}
}

func TestCosts(t *testing.T) {
	price := func(p map[catalog.PriceKind]uint64) catalog.Price { return catalog.Price{Micros: p} }
	full := price(map[catalog.PriceKind]uint64{
		catalog.PriceInput: 1_000_000, catalog.PriceCachedInput: 100_000, catalog.PriceCacheWrite: 1_250_000, catalog.PriceOutput: 4_000_000,
		catalog.PriceAudioInput: 10_000_000, catalog.PriceAudioOutput: 20_000_000, catalog.PriceImage: 40_000,
	})
	for name, c := range map[string]struct {
		price catalog.Price
		usage openai.Usage
		want  uint64
	}{
		"nothing":                    {full, openai.Usage{}, 0},
		"prompt and answer":          {full, openai.Usage{Input: 1000, Output: 100}, 1000 + 400},
		"a part is cached":           {full, openai.Usage{Input: 1000, Cached: 900}, 100 + 90},
		"a part is written":          {full, openai.Usage{Input: 1000, CacheWrite: 400}, 600 + 500},
		"audio":                      {full, openai.Usage{Input: 110, AudioIn: 100, Output: 60, AudioOut: 50}, 10 + 1000 + 40 + 1000},
		"pictures":                   {full, openai.Usage{Images: 3}, 120_000},
		"more cached than prompt":    {full, openai.Usage{Input: 10, Cached: 1000}, 1},
		"cache without its price":    {price(map[catalog.PriceKind]uint64{catalog.PriceInput: 1_000_000}), openai.Usage{Input: 1000, Cached: 900, CacheWrite: 50}, 1000},
		"cache that is free":         {price(map[catalog.PriceKind]uint64{catalog.PriceInput: 1_000_000, catalog.PriceCachedInput: 0}), openai.Usage{Input: 1000, Cached: 900}, 100},
		"a part of one is one":       {price(map[catalog.PriceKind]uint64{catalog.PriceInput: 1}), openai.Usage{Input: 1}, 1},
		"no price":                   {price(nil), openai.Usage{Input: 1 << 60, Output: 1 << 60}, 0},
		"more than can be counted":   {price(map[catalog.PriceKind]uint64{catalog.PriceInput: 1 << 48}), openai.Usage{Input: 1 << 63}, ^uint64(0)},
		"pictures beyond the counts": {price(map[catalog.PriceKind]uint64{catalog.PriceImage: 1 << 48}), openai.Usage{Images: 1 << 62}, ^uint64(0)},
	} {
		if got := Cost(c.price, c.usage); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestMoreUsageNeverCostsLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := catalog.Price{Micros: map[catalog.PriceKind]uint64{}}
		for _, kind := range catalog.PriceKinds() {
			if rapid.Bool().Draw(t, "has "+string(kind)) {
				p.Micros[kind] = rapid.Uint64Range(0, 1<<30).Draw(t, string(kind))
			}
		}
		u := openai.Usage{Input: rapid.Uint64Range(0, 1<<30).Draw(t, "input"), Output: rapid.Uint64Range(0, 1<<30).Draw(t, "output")}
		more := u
		more.Input += rapid.Uint64Range(0, 1<<20).Draw(t, "more input")
		more.Output += rapid.Uint64Range(0, 1<<20).Draw(t, "more output")
		more.Images = rapid.Uint64Range(0, 100).Draw(t, "images")
		if Cost(p, more) < Cost(p, u) {
			t.Fatalf("%+v costs %d, %+v %d", u, Cost(p, u), more, Cost(p, more))
		}
	})
}

func TestRecordsAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringN(0, 20, 40)
		number := rapid.Uint64()
		r := Record{
			Time: rapid.Int64().Draw(t, "time"), Key: word.Draw(t, "key"), KeyName: word.Draw(t, "name"), Project: word.Draw(t, "project"),
			Tenant: word.Draw(t, "tenant"), Model: word.Draw(t, "model"), Node: word.Draw(t, "node"), Provider: word.Draw(t, "provider"),
			Usage: openai.Usage{Input: number.Draw(t, "in"), Cached: number.Draw(t, "cached"), CacheWrite: number.Draw(t, "write"), Output: number.Draw(t, "out"),
				AudioIn: number.Draw(t, "ai"), AudioOut: number.Draw(t, "ao"), Images: number.Draw(t, "images"), Source: openai.UsageCounted},
			Micros: number.Draw(t, "micros"), Status: rapid.IntRange(0, 599).Draw(t, "status"), Millis: rapid.Int64().Draw(t, "millis"),
		}
		data, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRecord(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, got); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
	})
}
