package lab

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"llmgw/ui"
)

// limitsVariable, when "full", has TestLimits take eight boxes, three whole minutes and a
// mesh that is cut; make limits sets it.
const limitsVariable = "LIMITS"

// overload is how many times a limit is offered.
const overload = 10

// limitRun is what one run of TestLimits does.
type limitRun struct {
	boxes    int
	requests uint64  // a minute
	low      float64 // part of the limit that a whole minute admits at least
	high     float64 // and at most
}

// The targets are those of a machine that has the time; a short run beside other tests
// must only be far from what boxes admit that do not know of each other.
var (
	fullLimits  = limitRun{boxes: 8, requests: 600, low: .97, high: 1.02}
	shortLimits = limitRun{boxes: 4, requests: 300, low: .80, high: 1.25}
)

// limited is one limit under load.
type limited struct {
	name   string
	limit  uint64
	offers []*offer
	amount func(offered) uint64
	each   uint64 // what one request counts, about
}

// TestLimits: limits of requests, of tokens and of a tenant with three keys, asked for
// ten times what they let through, through all boxes at once.
func TestLimits(t *testing.T) {
	if os.Getenv(limitsVariable) == "full" {
		runLimits(t, fullLimits)
		return
	}
	t.Parallel()
	m := newLimitMesh(t, shortLimits.boxes, Sim{Tokens: 64})
	all := m.limits(t, shortLimits)
	// A minute of which enough is left, or the next from its beginning on.
	minute := time.Now().Truncate(time.Minute)
	if time.Since(minute) > 40*time.Second {
		minute = minute.Add(time.Minute)
	}
	m.load(all, minute, minute.Add(time.Minute), func() {})
	var table strings.Builder
	for _, l := range all {
		w := l.within(minute)
		fmt.Fprintln(&table, l.line("this minute", w))
		l.check(t, "this minute", w, shortLimits.low, shortLimits.high)
		l.answers(t, time.Time{})
	}
	t.Logf("%d boxes:\n%s", shortLimits.boxes, table.String())
}

// runLimits loads for 15 s, two whole minutes of which the mesh is cut in two in the
// second, and a third one.
func runLimits(t *testing.T, run limitRun) {
	m := newLimitMesh(t, run.boxes, Sim{Tokens: 64})
	all := m.limits(t, run)
	first := time.Now().Add(20 * time.Second).Truncate(time.Minute).Add(time.Minute)
	cut := first.Add(110 * time.Second)
	cpu := time.Duration(0)
	m.load(all, first.Add(-15*time.Second), first.Add(3*time.Minute), func() {
		time.Sleep(time.Until(first))
		before := spentBy(t, m.boxes)
		time.Sleep(time.Until(cut))
		cpu = (spentBy(t, m.boxes) - before) * 100 / time.Duration(cut.Sub(first))
		split(m.boxes, (*Box).CutTo)
	})
	var table, figure strings.Builder
	for _, l := range all {
		parts := []float64{}
		for i, name := range []string{"minute 1", "minute 2, cut at 50 s", "minute 3, in two halves"} {
			w := l.within(first.Add(time.Duration(i) * time.Minute))
			fmt.Fprintln(&table, l.line(name, w))
			low, high := run.low, run.high
			if i == 2 {
				low, high = .5, 1
			}
			l.check(t, name, w, low, high)
			parts = append(parts, l.part(w.amount))
		}
		l.answers(t, cut)
		across := l.fullest(cut.Add(-time.Minute), cut)
		behind := l.fullest(cut.Add(3*time.Second), first.Add(2*time.Minute))
		fmt.Fprintf(&table, "%-9s fullest minute across the cut %.3f; of those that begin 3 s or more after it %.3f\n", l.name, across, behind)
		fmt.Fprintf(&figure, " %s %.3f %.3f cut %.3f", l.name, parts[0], parts[1], parts[2])
	}
	fmt.Fprintf(&table, "the daemons took %d %% of a core, all together\nlimits: %d boxes offered %d times the limit, admitted of it by minute:%s",
		cpu, run.boxes, overload, figure.String())
	t.Logf("\n%s", table.String())
}

// limits makes keys, projects and a tenant, and who asks with them.
func (m *limitMesh) limits(t *testing.T, run limitRun) []*limited {
	t.Helper()
	const answer, request = 40, 48 // tokens of an answer, and about those of a whole request
	tokens := run.requests / 3 * request
	rules := func(metric string, n uint64) ui.RulesChange {
		return ui.RulesChange{Limits: []ui.LimitChange{{Metric: metric, Value: &n}}}
	}
	key := func(name string, change ui.KeyChange) *offer {
		return &offer{name: name, tokens: answer, key: m.newKey(t, ui.KeyRequest{Name: name, KeyChange: change})}
	}
	out := []*limited{
		{name: "requests", limit: run.requests, amount: oneRequest, each: 1, offers: []*offer{key("requests", ui.KeyChange{RulesChange: rules("requests", run.requests)})}},
		{name: "tokens", limit: tokens, amount: itsTokens, each: request, offers: []*offer{key("tokens", ui.KeyChange{RulesChange: rules("tokens", tokens)})}},
		{name: "tenant", limit: run.requests / 2, amount: oneRequest, each: 1},
	}
	acme := "acme"
	if _, err := m.admins[0].NewTenant(t.Context(), ui.TenantRequest{Name: acme, RulesChange: rules("requests", run.requests/2)}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		project := fmt.Sprintf("project-%d", i+1)
		if _, err := m.admins[0].NewProject(t.Context(), ui.ProjectRequest{Name: project, Tenant: &acme}); err != nil {
			t.Fatal(err)
		}
		out[2].offers = append(out[2].offers, key("tenant-key-"+fmt.Sprint(i+1), ui.KeyChange{Project: &project}))
	}
	return out
}

// load offers from one time to another while meanwhile runs.
func (m *limitMesh) load(all []*limited, from, to time.Time, meanwhile func()) {
	time.Sleep(time.Until(from))
	ctx, cancel := context.WithDeadline(context.Background(), to)
	defer cancel()
	var clients sync.WaitGroup
	for _, l := range all {
		for _, o := range l.offers {
			clients.Go(func() { o.run(ctx, m, overload*int(l.limit/l.each)/len(l.offers)) })
		}
	}
	meanwhile()
	clients.Wait()
}

func (l *limited) requests() (all []offered) {
	for _, o := range l.offers {
		all = append(all, o.known()...)
	}
	return all
}

func (l *limited) within(minute time.Time) window {
	return within(l.requests(), minute, time.Minute, l.amount)
}

func (l *limited) part(amount uint64) float64 { return float64(amount) / float64(l.limit) }

func (l *limited) line(when string, w window) string {
	return fmt.Sprintf("%-9s %-24s limit %6d, offered %6d requests, admitted %6d (%5d on an edge): %.3f",
		l.name, when, l.limit, w.offered, w.amount, w.edge, l.part(w.amount))
}

// answers looks at what came back. Relays that were on their way over a cut may fail.
func (l *limited) answers(t *testing.T, cut time.Time) {
	t.Helper()
	for _, o := range l.offers {
		var strange []string
		across := 0
		for _, r := range o.known() {
			switch {
			case r.text == "":
			case r.sent.Before(cut.Add(relayGivenUp)) && r.answered.After(cut):
				across++
			default:
				strange = append(strange, fmt.Sprintf("h%d, sent %s: %s", r.head+1, r.sent.Format("15:04:05.000"), r.text))
			}
		}
		if len(strange) > 0 {
			t.Logf("%s: %d answers were neither a success nor a refusal:\n%s", o.name, len(strange), strings.Join(sample(strange, 5), "\n"))
		}
		if len(strange)*1000 > strangeMost*len(o.known()) {
			t.Errorf("%s: %d of %d answers were neither a success nor a refusal", o.name, len(strange), len(o.known()))
		}
		if across > 0 {
			t.Logf("%s: %d requests that were on their way when the mesh was cut had no answer", o.name, across)
		}
		if !slices.ContainsFunc(o.known(), offered.admitted) {
			t.Errorf("%s: nothing was admitted", o.name)
		}
	}
}

// strangeMost of a thousand requests may end otherwise than by an answer or a refusal, as
// they do on a machine that has no time: that is not what is looked at here.
const strangeMost = 5

// relayGivenUp is how long after a cut relays still go over it.
const relayGivenUp = 5 * time.Second

// check bounds what a minute admitted; what was on its way at an end of it may count
// in either minute.
func (l *limited) check(t *testing.T, when string, w window, low, high float64) {
	t.Helper()
	if most := high*float64(l.limit) + float64(w.edge); float64(w.amount) > most {
		t.Errorf("%s, %s: admitted %.3f of the limit, %d on an edge", l.name, when, l.part(w.amount), w.edge)
	}
	if w.offered*int(l.each) < 3*int(l.limit) {
		t.Logf("%s, %s: the machine offered only %d requests; nothing is said of a lower bound", l.name, when, w.offered)
	} else if float64(w.amount+w.edge) < low*float64(l.limit) {
		t.Errorf("%s, %s: admitted %.3f of the limit", l.name, when, l.part(w.amount))
	}
}

// fullest looks at each minute that begins between two times, second by second.
func (l *limited) fullest(from, to time.Time) (worst float64) {
	all := l.requests()
	for at := from; !at.After(to); at = at.Add(time.Second) {
		worst = max(worst, l.part(within(all, at, time.Minute, l.amount).amount))
	}
	return worst
}
