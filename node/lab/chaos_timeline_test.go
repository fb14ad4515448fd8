package lab

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// span is a stretch of time. A zero end means that it lasts.
type span struct {
	from, to time.Time
	what     string
}

func (s span) touches(from, to time.Time) bool {
	return s.from.Before(to) && (s.to.IsZero() || s.to.After(from))
}

// timeline notes what was done to which box and link, and which replicas their
// holders called ready. What is asked of it is asked afterwards.
type timeline struct {
	mu    sync.Mutex
	boxes map[string][]span            // kept from running or from hearing and being heard
	links map[[2]string][]span         // one way, from the first to the second
	wipes map[string][]time.Time       // the state was lost
	ready map[string]map[string][]span // model, holder
}

func newTimeline() *timeline {
	return &timeline{
		boxes: map[string][]span{}, links: map[[2]string][]span{},
		wipes: map[string][]time.Time{}, ready: map[string]map[string][]span{},
	}
}

// disturb opens a span on a box; the function that is returned closes it.
func (l *timeline) disturb(box, what string) (settle func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.boxes[box] = append(l.boxes[box], span{from: time.Now(), what: what})
	i := len(l.boxes[box]) - 1
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.boxes[box][i].to = time.Now()
	}
}

// part opens a span on a link in one direction.
func (l *timeline) part(from, to string) (join func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	link := [2]string{from, to}
	l.links[link] = append(l.links[link], span{from: time.Now(), what: "pair"})
	i := len(l.links[link]) - 1
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.links[link][i].to = time.Now()
	}
}

func (l *timeline) wiped(box string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wipes[box] = append(l.wipes[box], time.Now())
}

// holds notes one look at a holder: is its replica of the model ready?
func (l *timeline) holds(model, holder string, ready bool, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ready[model] == nil {
		l.ready[model] = map[string][]span{}
	}
	spans := l.ready[model][holder]
	open := len(spans) > 0 && spans[len(spans)-1].what == "open"
	switch {
	case ready && open:
		spans[len(spans)-1].to = at
	case ready:
		spans = append(spans, span{from: at, to: at, what: "open"})
	case open:
		spans[len(spans)-1].what = "closed"
	}
	l.ready[model][holder] = spans
}

// disturbed says what was done to a box within [from, to]; "" is nothing.
func (l *timeline) disturbed(box string, from, to time.Time) string {
	i := slices.IndexFunc(l.boxes[box], func(s span) bool { return s.touches(from, to) })
	if i < 0 {
		return ""
	}
	return l.boxes[box][i].what
}

// linked says whether two boxes heard each other, as far as the network goes.
func (l *timeline) linked(a, b string, from, to time.Time) bool {
	parted := func(link [2]string) bool {
		return slices.ContainsFunc(l.links[link], func(s span) bool { return s.touches(from, to) })
	}
	return !parted([2]string{a, b}) && !parted([2]string{b, a})
}

// clean says whether two boxes ran undisturbed with a whole link between them.
func (l *timeline) clean(a, b string, from, to time.Time) bool {
	return l.disturbed(a, from, to) == "" && l.disturbed(b, from, to) == "" && l.linked(a, b, from, to)
}

// around tells what was done to two boxes and their link within [from, to].
func (l *timeline) around(a, b string, from, to time.Time) []string {
	var out []string
	add := func(name string, spans []span) {
		for _, s := range spans {
			if s.touches(from, to) {
				out = append(out, fmt.Sprintf("%s %s %s-%s", name, s.what, s.from.Format("05.0"), s.to.Format("05.0")))
			}
		}
	}
	add(a, l.boxes[a])
	if b != a {
		add(b, l.boxes[b])
		add(a+" to "+b, l.links[[2]string{a, b}])
		add(b+" to "+a, l.links[[2]string{b, a}])
	}
	return out
}

// served lists the boxes whose replica of a model was ready all the time.
func (l *timeline) served(model string, from, to time.Time) []string {
	var out []string
	for holder, spans := range l.ready[model] {
		if slices.ContainsFunc(spans, func(s span) bool { return !s.from.After(from) && !s.to.Before(to) }) {
			out = append(out, holder)
		}
	}
	slices.Sort(out)
	return out
}

// syncSpan is how long two boxes must have been in touch for one to hold for
// certain what the other wrote before.
const syncSpan = 8 * time.Second

// survivors walks what was written on a box at a time through the faults: who
// was long enough in touch with a holder holds it too, who was wiped does not.
func (l *timeline) survivors(boxes []string, writer string, at, end time.Time) []string {
	holders := map[string]bool{writer: true}
	for now := at; now.Before(end); now = now.Add(time.Second) {
		for _, b := range boxes {
			wiped := slices.ContainsFunc(l.wipes[b], func(w time.Time) bool { return w.After(now) && !w.After(now.Add(time.Second)) })
			if wiped {
				delete(holders, b)
				continue
			}
			for h := range holders {
				if began := now.Add(-syncSpan); !began.Before(at) && l.clean(h, b, began, now) {
					holders[b] = true
					break
				}
			}
		}
	}
	var out []string
	for h := range holders {
		out = append(out, h)
	}
	slices.Sort(out)
	return out
}

func TestTimelineJudges(t *testing.T) {
	t0 := time.Unix(1_000_000, 0)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	l := newTimeline()
	l.boxes["b"] = []span{{at(10), at(20), "cut"}}
	l.links[[2]string{"a", "c"}] = []span{{at(40), at(50), "pair"}}
	l.wipes["a"] = []time.Time{at(30)}
	l.ready["m"] = map[string][]span{"b": {{at(0), at(60), "open"}}, "c": {{at(0), at(5), "closed"}}}
	boxes := []string{"a", "b", "c"}
	for name, ok := range map[string]bool{
		"before the cut":             l.disturbed("b", at(5), at(9)) == "",
		"within the cut":             l.disturbed("b", at(12), at(13)) == "cut",
		"end inside the cut":         l.disturbed("b", at(5), at(12)) == "cut",
		"a pair cut is one link":     !l.linked("c", "a", at(45), at(46)) && l.linked("a", "b", at(45), at(46)),
		"served all the time":        slices.Equal(l.served("m", at(10), at(50)), []string{"b"}),
		"served at the beginning":    slices.Equal(l.served("m", at(1), at(4)), []string{"b", "c"}),
		"lost with the only holder":  len(l.survivors(boxes, "a", at(25), at(60))) == 0,
		"synced before the wipe":     slices.Contains(l.survivors(boxes, "a", at(1), at(60)), "c"),
		"a wiped box hears it again": slices.Contains(l.survivors(boxes, "a", at(1), at(60)), "a"),
		"a writer that lives on":     slices.Contains(l.survivors(boxes, "c", at(25), at(26)), "c"),
	} {
		if !ok {
			t.Errorf("%s: judged wrongly", name)
		}
	}
}

func TestTimelineNotesReplicas(t *testing.T) {
	t0 := time.Unix(1_000_000, 0)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	l := newTimeline()
	for s, ready := range []bool{true, true, false, true, true} {
		l.holds("m", "b", ready, at(s))
	}
	if got := l.served("m", at(0), at(1)); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the first span: %v", got)
	}
	if got := l.served("m", at(1), at(3)); len(got) != 0 {
		t.Errorf("a span over the gap: %v", got)
	}
}
