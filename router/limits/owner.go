package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"llmgw/crdt"

	"github.com/fxamacker/cbor/v2"
)

const (
	// askTime is how long a request waits for its owner; then this head decides by
	// its share.
	askTime = 50 * time.Millisecond
	// maxQuestion bounds a question, in limits and in bytes.
	maxQuestion, maxQuestionBytes = 32, 16 << 10
	// ownerVersion is the first element of questions and answers.
	ownerVersion = 1
)

var (
	errForeign  = errors.New("counts of another head")
	errQuestion = errors.New("no question about limits")
)

type question struct {
	_       struct{} `cbor:",toarray"`
	Version int
	Needs   []asked
}

type asked struct {
	_              struct{} `cbor:",toarray"`
	Level, Subject string
	Metric         string
	Limit, Amount  uint64
}

type reply struct {
	_       struct{} `cbor:",toarray"`
	Version int
	Window  int64
	Failed  int // index of the limit that is not passed; -1: granted
	Used    uint64
	Wait    int64 // milliseconds
}

// ownerOf is the head that decides for a request. Whoever counts for one tenant, or
// without one for one project, has one owner, so that all limits of a request are
// decided together. The caller holds mu.
func (l *Limiter) ownerOf(g *Grant) string {
	s := g.subjects[len(g.subjects)-1]
	return l.heads.owner(s.level + ":" + s.id)
}

// askOwner has the owner decide under the policy Owner; asked is false when this head
// has to decide.
func (l *Limiter) askOwner(ctx context.Context, g *Grant) (window int64, asked bool, _ *Refusal) {
	if l.cfg.Policy() != Owner || l.cfg.Asker == nil {
		return 0, false, nil
	}
	l.mu.Lock()
	owner, needs := l.ownerOf(g), g.needs(l.output(g.req))
	l.mu.Unlock()
	if owner == l.cfg.Peer || len(needs) == 0 || len(needs) > maxQuestion {
		return 0, false, nil
	}
	l.stats.asked.Add(1)
	a, err := l.ask(ctx, owner, needs)
	if err != nil {
		l.stats.unanswered.Add(1)
		l.cfg.Log.Debug("the owner of a limit does not answer", "owner", owner, "error", err)
		return 0, false, nil
	}
	if a.Failed < 0 {
		return a.Window, true, nil
	}
	n := needs[a.Failed]
	r := n.refusal(verdict{view: level{taken: float64(a.Used)}, wait: max(time.Duration(a.Wait)*time.Millisecond, time.Second)})
	return 0, true, r
}

func (l *Limiter) ask(ctx context.Context, owner string, needs []need) (reply, error) {
	q := question{Version: ownerVersion}
	for _, n := range needs {
		q.Needs = append(q.Needs, asked{Level: n.level, Subject: n.id, Metric: string(n.metric), Limit: n.limit, Amount: n.amount})
	}
	msg, err := cbor.Marshal(q)
	if err != nil {
		return reply{}, fmt.Errorf("write question: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	text, err := l.cfg.Asker.Ask(ctx, owner, msg)
	if err != nil {
		return reply{}, err
	}
	var a reply
	if err := cbor.Unmarshal(text, &a); err != nil {
		return reply{}, fmt.Errorf("read answer: %w", err)
	}
	if a.Version != ownerVersion || a.Failed < -1 || a.Failed >= len(needs) {
		return reply{}, errQuestion
	}
	if w := crdt.WindowOf(l.cfg.Now()); a.Failed < 0 && (a.Window < w-1 || a.Window > w+1) {
		return reply{}, fmt.Errorf("answer of another time: %w", errQuestion)
	}
	return a, nil
}

// Answer decides as the owner for another head, which counts what it was granted. An
// error means that the question makes no sense.
func (l *Limiter) Answer(from string, msg []byte) ([]byte, error) {
	if len(msg) > maxQuestionBytes {
		return nil, fmt.Errorf("%d bytes: %w", len(msg), errQuestion)
	}
	var q question
	if err := cbor.Unmarshal(msg, &q); err != nil {
		return nil, fmt.Errorf("%w: %w", errQuestion, err)
	}
	if q.Version != ownerVersion || len(q.Needs) == 0 || len(q.Needs) > maxQuestion {
		return nil, errQuestion
	}
	for _, n := range q.Needs {
		if max(len(n.Level), len(n.Subject), len(n.Metric)) > maxMeterName || max(n.Limit, n.Amount) > crdt.MaxAmount {
			return nil, errQuestion
		}
	}
	out, err := cbor.Marshal(l.decide(from, q.Needs))
	if err != nil {
		return nil, fmt.Errorf("write answer: %w", err)
	}
	return out, nil
}

// maxMeterName bounds the names of a meter from outside, in bytes.
const maxMeterName = 128

func (l *Limiter) decide(from string, needs []asked) reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.cfg.Now()
	a := reply{Version: ownerVersion, Window: crdt.WindowOf(now), Failed: -1}
	for i, n := range needs {
		m := l.meter(crdt.Meter{Limit: n.Level, Subject: n.Subject, Metric: n.Metric})
		v := l.judge(m, n.Limit, n.Amount, Owner, now)
		if ms := v.wait.Milliseconds(); !v.ok && (a.Failed < 0 || ms > a.Wait) {
			a.Failed, a.Used, a.Wait = i, uint64(v.view.taken), ms
		}
	}
	if a.Failed >= 0 {
		return a
	}
	for _, n := range needs {
		m := l.meter(crdt.Meter{Limit: n.Level, Subject: n.Subject, Metric: n.Metric})
		l.lend(m, a.Window, from, n.Amount)
	}
	return a
}

// lend counts what another head was let hold until it tells of it itself: what it was
// granted in the window so far, less what it told to hold there.
func (l *Limiter) lend(m *meter, window int64, to string, amount uint64) {
	p := l.pane(m, window)
	if p.grants == nil {
		p.grants = map[string]uint64{}
	}
	var told uint64
	for _, e := range p.set.All() {
		if peer, live := l.heads.holder(e.By); live && peer == to {
			told = e.Count.Up
		}
	}
	p.grants[to] = add(max(p.grants[to], told), amount)
	p.fresh = false
}
