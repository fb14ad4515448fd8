package lab

import (
	"fmt"
	"testing"
	"time"
)

// Grace times of the judgement. After a fault ends, boxes redial each second,
// greet, and hear each other's presence; before that a replica counts as not
// reachable yet.
const (
	reachGrace = 5 * time.Second
	// entryGrace: a daemon that just started has no view of the mesh yet.
	entryGrace = 5 * time.Second
	// readyGrace is how long a new replica may take to be known everywhere.
	readyGrace = 3 * time.Second
)

// Classes of requests. Only fault is a fault of ours.
const (
	classOK      = "answered"
	classBroken  = "broken after the first byte"
	classEntry   = "entry killed, paused or cut off"
	classComing  = "entry came back just before"
	classNobody  = "no ready replica reachable"
	classForeign = "FAULT"
)

// classify says whose fault a request's end was.
func (l *timeline) classify(a asked) string {
	switch {
	case a.ok:
		return classOK
	case l.disturbed(a.entry, a.from, a.to) != "":
		return classEntry
	case a.first:
		return classBroken
	case l.disturbed(a.entry, a.from.Add(-entryGrace), a.to) != "":
		return classComing
	}
	for _, holder := range l.served(a.model, a.from.Add(-readyGrace), a.to) {
		if l.clean(a.entry, holder, a.from.Add(-reachGrace), a.to) {
			return classForeign
		}
	}
	return classNobody
}

// sinceReturn is how long before a request its entry's last fault ended.
func (l *timeline) sinceReturn(a asked) time.Duration {
	since := a.from.Sub(time.Time{})
	for _, s := range l.boxes[a.entry] {
		if !s.to.IsZero() && s.to.Before(a.from) {
			since = min(since, a.from.Sub(s.to))
		}
	}
	return since
}

// untold says whether a stream broke off without a word although its entry
// could have said one.
func (l *timeline) untold(a asked) bool {
	return l.classify(a) == classBroken && a.stream && !a.told
}

func TestRequestsAreClassified(t *testing.T) {
	t0 := time.Unix(1_000_000, 0)
	at := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	l := newTimeline()
	l.ready["m"] = map[string][]span{"b": {{at(0), at(100), "open"}}, "c": {{at(0), at(60), "closed"}}}
	l.boxes["b"] = []span{{at(50), at(58), faultKill}}
	l.boxes["a"] = []span{{at(20), at(25), faultCut}}
	l.links[[2]string{"a", "b"}] = []span{{at(70), at(75), "pair"}}
	for name, tc := range map[string]struct {
		a    asked
		want string
	}{
		"answered":                  {asked{ok: true}, classOK},
		"two replicas":              {asked{from: at(10), to: at(11)}, classForeign},
		"one replica killed":        {asked{from: at(49), to: at(51)}, classForeign},
		"the other one not up yet":  {asked{from: at(61), to: at(61.5)}, classNobody},
		"up again":                  {asked{from: at(64), to: at(65)}, classForeign},
		"entry cut":                 {asked{from: at(19), to: at(21)}, classEntry},
		"entry cut, first byte out": {asked{from: at(19), to: at(21), first: true}, classEntry},
		"entry back for a second":   {asked{from: at(26), to: at(27)}, classComing},
		"pair cut":                  {asked{from: at(72), to: at(73)}, classNobody},
		"broken":                    {asked{from: at(49), to: at(51), first: true}, classBroken},
	} {
		tc.a.entry, tc.a.model = "a", "m"
		if got := l.classify(tc.a); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if l.untold(asked{entry: "a", model: "m", from: at(49), to: at(51), first: true, stream: true, told: true}) {
		t.Error("a told end counts as untold")
	}
}

// sample keeps a few of many, to be read by a person.
func sample(of []string, n int) []string {
	if len(of) <= n {
		return of
	}
	return append(of[:n:n], fmt.Sprintf("and %d more", len(of)-n))
}
