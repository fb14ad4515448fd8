package lab

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"llmgw/ui"
)

const (
	// budgetAnswer is the tokens of an answer, budgetMost what a request costs at most
	// at inputPrice and outputPrice, in micro-units a token.
	budgetAnswer            = 20
	inputPrice, outputPrice = 1, 10
	budgetMost              = 300
	// budgetAmount lets some 400 requests through.
	budgetAmount    = 400 * 208
	budgetPerMinute = 1800
	// stopPatience is for a loaded machine; the aim is a second.
	stopPatience = 15 * time.Second
)

func (o offered) cost() uint64 { return inputPrice*o.input + outputPrice*o.output }

// budgetRun is two keys, each with a budget in money that all boxes spend at once.
type budgetRun struct {
	*limitMesh
	soft, hard *offer
	killed     int // the box that is killed and started again
	when       time.Time
	mu         sync.Mutex
	lowered    []string
}

// TestBudgets: all boxes spend two budgets at once, one of them divided among the boxes;
// one box is killed in the middle and comes back. What clients were answered, what each
// box says was spent, the records on the disks, and all of that after every box was
// killed agree.
func TestBudgets(t *testing.T) {
	t.Parallel()
	b := newBudgetRun(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var running sync.WaitGroup
	for _, o := range []*offer{b.soft, b.hard} {
		running.Go(func() { o.run(ctx, b.limitMesh, budgetPerMinute) })
	}
	running.Go(func() { b.watch(ctx) })
	Eventually(t, 90*time.Second, "a third of both budgets is spent", func() (bool, string) {
		return total(b.soft.known()) > budgetAmount/3 && total(b.hard.known()) > budgetAmount/3, fmt.Sprint(total(b.soft.known()), total(b.hard.known()))
	})
	b.when = time.Now()
	b.boxes[b.killed].Kill()
	b.boxes[b.killed].Start()
	for _, o := range []*offer{b.soft, b.hard} {
		Eventually(t, 120*time.Second, "every box refuses for "+o.name, func() (bool, string) { return b.refused(o.known()) })
	}
	stop()
	running.Wait()
	if len(b.lowered) > 0 {
		t.Errorf("what was spent was lowered: %v", b.lowered)
	}
	for _, o := range []*offer{b.soft, b.hard} {
		b.agree(t, o)
	}
	b.afterAllWereKilled(t)
}

func newBudgetRun(t *testing.T) *budgetRun {
	t.Helper()
	b := &budgetRun{limitMesh: newLimitMesh(t, 4, Sim{Tokens: 64}), killed: 2}
	price := ui.Price{Model: limitModel, Micros: []ui.Micro{{Kind: "input", Value: inputPrice * 1_000_000}, {Kind: "output", Value: outputPrice * 1_000_000}}}
	if _, err := b.admins[0].SetPrice(t.Context(), price); err != nil {
		t.Fatal(err)
	}
	amount := uint64(budgetAmount)
	budget := func(name string, hard bool) *offer {
		change := ui.RulesChange{Budgets: []ui.BudgetChange{{Period: "total", Unit: "micros", Amount: &amount, Hard: hard}}}
		return &offer{name: name, tokens: budgetAnswer, key: b.newKey(t, ui.KeyRequest{Name: name, KeyChange: ui.KeyChange{RulesChange: change}})}
	}
	b.soft, b.hard = budget("soft", false), budget("hard", true)
	for i, a := range b.admins {
		Eventually(t, startTimeout, b.boxes[i].Name+" knows the price", func() (bool, string) {
			list, err := a.Prices(t.Context())
			return err == nil && len(list.Prices) == 1, fmt.Sprint(list, err)
		})
	}
	return b
}

func total(all []offered) (sum uint64) {
	for _, r := range all {
		sum += r.cost()
	}
	return sum
}

// refused says whether the newest answers of each box are refusals for good.
func (b *budgetRun) refused(all []offered) (bool, string) {
	const newest = 12
	slices.SortFunc(all, func(x, y offered) int { return y.sent.Compare(x.sent) })
	for head, box := range b.boxes {
		n := 0
		for _, r := range all {
			if r.head != head {
				continue
			}
			if !r.quota || n == newest {
				break
			}
			n++
		}
		if n < newest {
			return false, fmt.Sprintf("%s: the newest %d are refused, %d spent", box.Name, n, total(all))
		}
	}
	return true, ""
}

// spent is what a box says that each key spent.
func (b *budgetRun) spent(ctx context.Context, box int) (map[string]uint64, error) {
	list, err := b.admins[box].Keys(ctx)
	out := map[string]uint64{}
	for _, k := range list.Keys {
		if len(k.Budgets) == 1 {
			out[k.Name] = k.Budgets[0].Spent
		}
	}
	return out, err
}

// watch sees that what a box says was spent never falls, a restart included.
func (b *budgetRun) watch(ctx context.Context) {
	high := make([]map[string]uint64, len(b.boxes))
	for ctx.Err() == nil {
		for i := range b.boxes {
			now, err := b.spent(ctx, i)
			if err != nil {
				continue // it is killed just now
			}
			for name, was := range high[i] {
				if now[name] < was {
					b.mu.Lock()
					b.lowered = append(b.lowered, fmt.Sprintf("%s of %s from %d to %d", name, b.boxes[i].Name, was, now[name]))
					b.mu.Unlock()
				}
			}
			high[i] = now
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// settled waits until all boxes say the same of a key, and returns that.
func (b *budgetRun) settled(t *testing.T, name string) (sum uint64) {
	t.Helper()
	Eventually(t, 60*time.Second, "all boxes say the same of "+name, func() (bool, string) {
		var all []uint64
		for i := range b.boxes {
			now, err := b.spent(t.Context(), i)
			if err != nil {
				return false, err.Error()
			}
			all = append(all, now[name])
		}
		sum = all[0]
		return slices.Min(all) == slices.Max(all), fmt.Sprint(all)
	})
	return sum
}

// recorded sums up the usage records of a key on all disks.
func (b *budgetRun) recorded(t *testing.T, name string) (sum uint64) {
	t.Helper()
	Eventually(t, 60*time.Second, "all boxes tell their records", func() (bool, string) {
		r, err := b.admins[0].Usage(t.Context(), ui.UsageRequest{By: "key"})
		sum = 0
		for _, row := range r.Rows {
			if row.Name == name {
				sum = row.Micros
			}
		}
		return err == nil && len(r.Missing) == 0, fmt.Sprint(r.Missing, err)
	})
	return sum
}

// agree compares what clients of a key got with what the boxes counted.
func (b *budgetRun) agree(t *testing.T, o *offer) {
	t.Helper()
	all := o.known()
	var answered, atRisk, open uint64
	for _, r := range all {
		answered += r.cost()
		switch before := b.when.Sub(r.answered); {
		case r.status == 0 && r.head == b.killed && r.sent.Before(b.when):
			open += budgetMost // it may have been served and counted
		case r.text != "" && r.head != b.killed:
			t.Errorf("%s: %s answered: %s", o.name, b.boxes[r.head].Name, r.text)
		case r.head == b.killed && before < time.Second && before > -time.Second:
			atRisk += r.cost() // it may not be on the disk yet
		}
	}
	spent, records := b.settled(t, o.name), b.recorded(t, o.name)
	last, stopped := b.stopped(all)
	t.Logf("%s: budget %d, answered %d, spent %d, on the disks %d; the kill took %d (of at most %d); over the budget %d; %d refused; the last admitted was sent %v after it was spent",
		o.name, budgetAmount, answered, spent, records, int64(answered)-int64(spent), atRisk, max(int64(spent)-budgetAmount, 0),
		len(slices.DeleteFunc(slices.Clone(all), offered.admitted)), last.Round(time.Millisecond))
	switch {
	case spent != records:
		t.Errorf("%s: %d spent, %d in the records", o.name, spent, records)
	case spent+atRisk < answered || spent > answered+open:
		t.Errorf("%s: answered %d, spent %d; %d may be lost, %d may be more", o.name, answered, spent, atRisk, open)
	case o == b.hard && max(spent, answered) > budgetAmount:
		t.Errorf("a hard budget of %d was exceeded: answered %d, spent %d", budgetAmount, answered, spent)
	case o == b.hard && spent < budgetAmount/2:
		t.Errorf("only %d of a hard budget of %d could be spent", spent, budgetAmount)
	case o == b.soft && !stopped:
		t.Errorf("only %d of a budget of %d were spent", answered, budgetAmount)
	case o == b.soft && (last > stopPatience || spent > budgetAmount*5/4):
		t.Errorf("%s was stopped %v after its budget of %d was spent, at %d", o.name, last, budgetAmount, spent)
	}
}

// stopped is how long after the answers had cost the whole budget, or as much of it as
// was ever spent, the last one was let through by any box.
func (b *budgetRun) stopped(all []offered) (last time.Duration, spent bool) {
	admitted := slices.DeleteFunc(slices.Clone(all), func(r offered) bool { return !r.admitted() })
	slices.SortFunc(admitted, func(x, y offered) int { return x.answered.Compare(y.answered) })
	sum, end := uint64(0), time.Time{}
	for _, r := range admitted {
		sum += r.cost()
		if end.IsZero() && sum > budgetAmount-budgetMost {
			end, spent = r.answered, true
		}
		if !end.IsZero() {
			last = max(last, r.sent.Sub(end))
		}
	}
	return last, spent
}

// afterAllWereKilled looks at what is on the disks.
func (b *budgetRun) afterAllWereKilled(t *testing.T) {
	t.Helper()
	before := map[*offer]uint64{b.soft: b.settled(t, b.soft.name), b.hard: b.settled(t, b.hard.name)}
	for _, box := range b.boxes {
		box.Kill()
	}
	for _, box := range b.boxes {
		box.Launch()
	}
	for i, box := range b.boxes {
		box.AwaitAPI()
		now, err := b.spent(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		for o, was := range before {
			if now[o.name] != was {
				t.Errorf("%s: %s came back with %d spent, it was %d", o.name, box.Name, now[o.name], was)
			}
			o.one(i, b.at(box, o.key))
			if r := o.known(); !r[len(r)-1].quota {
				t.Errorf("%s: %s answered %+v after its return", o.name, box.Name, r[len(r)-1])
			}
		}
	}
}
