package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"llmgw/ui"
)

// Variables of a chaos run.
const (
	minutesVariable = "MINUTES"            // how long faults are dealt; default: chaosLeast
	seedVariable    = "SEED"               // repeats a plan
	reportVariable  = "LLMGW_CHAOS_REPORT" // a file for the report; what failed goes to the same name with .failures
)

// chaosLeast deals each kind of fault once.
const chaosLeast = 65 * time.Second

// quietWithin is how long the boxes may take to be one again once everything is
// healed: a dead box is redialled each second, a lost slot is placed again 30 s
// after its holder fell silent.
const quietWithin = 75 * time.Second

// quietFor is how long they must stay one.
const quietFor = 3 * time.Second

// smallDiskBytes holds the state of a box and what a pull leaves free.
const smallDiskBytes = 160 << 20

// TestChaos hurts five boxes at random while they are written to and asked, then
// heals everything and looks for what the faults broke for good.
func TestChaos(t *testing.T) {
	// Alone: what other tests take of the machine would be judged as a fault here.
	length, seed := chaosSettings(t)
	faults := plan(rand.New(rand.NewPCG(seed, 0)), allKinds(), length)
	c := newChaos(t)
	infer, err := c.admins[0].NewKey(t.Context(), ui.KeyRequest{Name: "clients"})
	if err != nil {
		t.Fatal(err)
	}
	labelled := c.nodeID(0)
	if _, why := c.settled(labelled); why != "" {
		t.Fatalf("before any fault: %s", why)
	}
	began := time.Now()
	l := newLedger()
	requests := c.run(faults, seed, infer.Key, l, labelled)
	healed := time.Now()
	s, why := c.settled(labelled)
	r := chaosReport{seed: seed, length: time.Since(began), faults: c.counts, notes: c.notes, requests: requests, line: c.line, ledger: l, quiet: time.Since(healed)}
	if why != "" {
		r.broken = append(r.broken, "the boxes are not one: "+why)
	}
	lost, excused := l.missing(s, c.line, c.names, healed)
	r.excused = excused
	for _, x := range lost {
		r.broken = append(r.broken, "lost: "+string(x))
	}
	r.broken = append(r.broken, c.liveKeys(l, s)...)
	r.broken = append(r.broken, c.unanswered(infer.Key)...)
	c.publish(r)
}

func chaosSettings(t *testing.T) (time.Duration, uint64) {
	length, seed := chaosLeast, uint64(time.Now().UnixNano())%1_000_000
	if text := os.Getenv(minutesVariable); text != "" {
		minutes, err := strconv.ParseFloat(text, 64)
		if err != nil || minutes <= 0 {
			t.Fatalf("%s=%q is no number of minutes", minutesVariable, text)
		}
		length = time.Duration(minutes * float64(time.Minute))
	}
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s=%q is no seed", seedVariable, text)
		}
	}
	t.Logf("%s=%d repeats this plan", seedVariable, seed)
	return length, seed
}

// newChaos builds five joined boxes with the weights of all models on each.
func newChaos(t *testing.T) *chaos {
	l := New(t)
	c := &chaos{Lab: l, line: newTimeline(), counts: map[string]int{}, clocks: make([]time.Duration, 5), labelMu: make([]sync.Mutex, 5), away: make([]atomic.Bool, 5)}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		b := l.Box(name)
		c.boxes, c.names, c.admins = append(c.boxes, b), append(c.names, name), append(c.admins, b.Admin())
	}
	c.laptop = l.Box("laptop")
	c.clients = c.laptop.FreshClient()
	c.boxes[smallDisk].SmallDisk(smallDiskBytes)
	for _, b := range c.boxes {
		b.Launch()
	}
	for i, b := range c.boxes {
		b.AwaitAPI()
		if i > 0 {
			c.rejoin(i)
		}
	}
	models := map[string]Sim{modelDuo: {Tokens: 8, IntervalMS: 5, FirstMS: 30}, modelSlow: {Tokens: 50, IntervalMS: 40}, modelFlex: {Tokens: 8, IntervalMS: 5}}
	for name, sim := range models {
		for _, b := range c.boxes {
			b.PullSim(name, sim)
		}
	}
	// What is placed before all are known to have the weights is not spread.
	Eventually(t, 15*time.Second, "each box knows that all have the weights", func() (bool, string) {
		for _, a := range c.admins {
			list, err := a.Models(t.Context())
			if err != nil || len(list.Models) != len(models) || slices.ContainsFunc(list.Models, func(m ui.Model) bool { return len(m.OnDisk) != len(c.boxes) }) {
				return false, fmt.Sprint(list.Models, err)
			}
		}
		return true, ""
	})
	for name := range models {
		two := 2
		if _, err := c.admins[0].SetModel(t.Context(), ui.ModelRequest{Model: name, Replicas: &two}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *chaos) nodeID(i int) string {
	c.tb.Helper()
	s, err := c.admins[i].Status(c.tb.Context())
	if err != nil {
		c.tb.Fatal(err)
	}
	return s.Node.ID
}

// run carries the plan out under load and returns the requests.
func (c *chaos) run(faults []fault, seed uint64, key string, l *ledger, labelled string) []asked {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var load sync.WaitGroup
	var requests []asked
	load.Go(func() { requests = c.ask(ctx, seed, key) })
	load.Go(func() { c.write(ctx, rand.New(rand.NewPCG(seed, 1)), l, labelled) })
	watch, unwatch := context.WithCancel(context.Background())
	defer unwatch()
	var watching sync.WaitGroup
	watching.Go(func() { c.watchReplicas(watch) })
	c.carryOut(faults)
	stop()
	load.Wait() // requests end while replicas are still watched
	unwatch()
	watching.Wait()
	return requests
}

// settled waits until all boxes are one for a while and returns what they show.
func (c *chaos) settled(labelled string) (s state, why string) {
	since := time.Time{}
	for deadline := time.Now().Add(quietWithin); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if s, why = c.apart(labelled); why != "" {
			since = time.Time{}
			continue
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) >= quietFor {
			return s, ""
		}
	}
	if why == "" {
		why = "they became one too late"
	}
	return s, why
}

// liveKeys tries revoked keys on every box, and those that stand.
func (c *chaos) liveKeys(l *ledger, s state) []string {
	var out []string
	for _, k := range l.keys {
		stands := slices.Contains(s.keys, k.id)
		for _, b := range c.boxes {
			got, err := (&API{HTTP: c.clients, Base: b.URL(), Key: k.text}).Ask(context.Background(), "GET", "/v1/models", nil)
			if err != nil || stands && got.Status != 200 || !stands && !got.unknownKey() {
				out = append(out, fmt.Sprintf("key %s on %s, which stands: %v: %v %v", k.id, b.Name, stands, got, err))
			}
		}
	}
	return out
}

// unanswered asks each box for each model once more.
func (c *chaos) unanswered(key string) []string {
	var out []string
	for _, b := range c.boxes {
		for _, model := range chaosModels {
			got, err := (&API{HTTP: c.clients, Base: b.URL(), Key: key}).Ask(context.Background(), "POST", "/v1/chat/completions", Chat(model, "Hi", false, nil))
			if err != nil || got.Status != 200 {
				out = append(out, fmt.Sprintf("after all was healed %s did not answer for %s: %v %v", b.Name, model, got, err))
			}
		}
	}
	return out
}

// chaosReport is what a run was and what it found.
type chaosReport struct {
	seed          uint64
	length, quiet time.Duration
	faults        map[string]int
	notes         []string
	requests      []asked
	line          *timeline
	ledger        *ledger
	excused       int
	broken        []string
}

// longWait is more than a request waits for a box to be suspected and for
// another attempt.
const longWait = 12 * time.Second

// publish writes the report to the log and, where asked, to a file; what must
// not be fails the test.
func (c *chaos) publish(r chaosReport) {
	classes := map[string]map[string]int{}
	totals := map[string]int{}
	var faulty, long, untold []string
	latest := time.Duration(0) // of what failed after its entry came back
	for _, a := range r.requests {
		class := r.line.classify(a)
		totals[class]++
		if r.line.untold(a) {
			untold = append(untold, a.String())
		}
		if class == classOK {
			continue
		}
		if classes[class] == nil {
			classes[class] = map[string]int{}
		}
		classes[class][a.reason]++
		if class == classForeign {
			faulty = append(faulty, a.String())
		}
		if class == classComing {
			latest = max(latest, r.line.sinceReturn(a))
		}
		if a.to.Sub(a.from) > longWait && class != classEntry {
			long = append(long, class+": "+a.String())
		}
	}
	var out strings.Builder
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(r.faults)) {
		fmt.Fprintf(&out, "%4d x %s\n", r.faults[kind], kind)
		total += r.faults[kind]
	}
	for _, n := range r.notes {
		fmt.Fprintf(&out, "note: %s\n", n)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.ledger.counts)) {
		fmt.Fprintf(&out, "%4d writes: %s\n", r.ledger.counts[kind], kind)
	}
	fmt.Fprintf(&out, "%4d acknowledged writes went with the only store that held them\n", r.excused)
	for _, class := range slices.Sorted(maps.Keys(totals)) {
		fmt.Fprintf(&out, "%4d requests: %s\n", totals[class], class)
		for _, reason := range slices.Sorted(maps.Keys(classes[class])) {
			fmt.Fprintf(&out, "       %4d %s\n", classes[class][reason], reason)
		}
	}
	fmt.Fprintf(&out, "%4d streams ended without an error frame though their entry was well\n", len(untold))
	fmt.Fprintf(&out, "the last failure at an entry that had come back began %v after its return\n", latest.Round(10*time.Millisecond))
	for _, b := range sample(r.broken, 20) {
		fmt.Fprintf(&out, "BROKEN: %s\n", b)
	}
	for _, f := range sample(append(faulty, untold...), 20) {
		fmt.Fprintf(&out, "FAULT: %s\n", f)
	}
	fmt.Fprintf(&out, "%4d failures took longer than %v to be told, though the entry was well\n", len(long), longWait)
	for _, f := range sample(long, 10) {
		fmt.Fprintf(&out, "       %s\n", f)
	}
	fmt.Fprintf(&out, "one again %v after the last fault\n", r.quiet.Round(100*time.Millisecond))
	violations := len(r.broken) + len(faulty) + len(untold)
	fmt.Fprintf(&out, "chaos: seed %d, %v, %d faults, %d requests, %d violations\n", r.seed, r.length.Round(time.Second), total, len(r.requests), violations)
	c.tb.Logf("\n%s", out.String())
	if path := os.Getenv(reportVariable); path != "" {
		failed := os.WriteFile(path+".failures", []byte(r.failures()), 0o644)
		if err := errors.Join(failed, os.WriteFile(path, []byte(out.String()), 0o644)); err != nil {
			c.tb.Error(err)
		}
	}
	if violations > 0 {
		c.tb.Errorf("%d violations", violations)
	}
}

// failures tells of each request that failed and of those who served its model
// at the time, for a person who looks for the cause.
func (r chaosReport) failures() string {
	var out strings.Builder
	for _, a := range r.requests {
		class := r.line.classify(a)
		if class == classOK {
			continue
		}
		fmt.Fprintf(&out, "%s: %v\n", class, a)
		for _, holder := range r.line.served(a.model, a.from, a.to) {
			fmt.Fprintf(&out, "    ready on %s", holder)
			for _, s := range r.line.around(a.entry, holder, a.from.Add(-reachGrace), a.to) {
				fmt.Fprintf(&out, "; %s", s)
			}
			fmt.Fprintln(&out)
		}
	}
	return out.String()
}
