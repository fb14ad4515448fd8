package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"llmgw/ui"
)

// written is one write that a box acknowledged, or may have taken.
type written struct {
	box   string
	at    time.Time // when it was acknowledged
	sure  bool      // it was acknowledged; else nobody knows
	value string
}

// keyTale is what was done to one API key.
type keyTale struct {
	id, text string
	made     written
	revoked  []written
}

// ledger keeps what the boxes acknowledged.
type ledger struct {
	mu     sync.Mutex
	keys   []*keyTale
	labels map[string][]written // by the box that alone writes it, in order
	scales []written
	tokens map[string]written // by the box's word for it
	counts map[string]int     // outcome by kind
}

func newLedger() *ledger {
	return &ledger{labels: map[string][]written{}, tokens: map[string]written{}, counts: map[string]int{}}
}

// writeEach is the pause between two admin writes, on one box or another.
const writeEach = 150 * time.Millisecond

// adminWait bounds one admin write.
const adminWait = 6 * time.Second

// write makes admin writes on random boxes until ctx ends.
func (c *chaos) write(ctx context.Context, r *rand.Rand, l *ledger, labelled string) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(writeEach):
		}
		i, dice := r.IntN(len(c.boxes)), r.IntN(100)
		replicas := 1 + r.IntN(3)
		victim := l.victim(r)
		if c.away[i].Load() {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminWait)
			defer cancel()
			switch {
			case dice < 40:
				c.makeKey(ctx, l, i, n)
			case dice < 65 && victim != nil:
				c.revokeKey(ctx, l, i, victim)
			case dice < 90:
				c.label(ctx, l, i, n, labelled)
			default:
				c.scale(ctx, l, i, replicas)
			}
		})
	}
}

// victim picks a key to revoke.
func (l *ledger) victim(r *rand.Rand) *keyTale {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.keys) == 0 {
		return nil
	}
	return l.keys[r.IntN(len(l.keys))]
}

// outcome says what came of a write: done, refused (it was not made) or
// unknown.
func (l *ledger) outcome(kind string, err error) string {
	what := "done"
	var refused *ui.APIError
	switch {
	case errors.As(err, &refused) && refused.Status < 500:
		what = "refused"
	case err != nil:
		what = "unknown"
	}
	l.counts[kind+" "+what]++
	return what
}

func (c *chaos) makeKey(ctx context.Context, l *ledger, i, n int) {
	key, err := c.admins[i].NewKey(ctx, ui.KeyRequest{Name: fmt.Sprintf("key-%d", n)})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.outcome("key made", err) == "done" {
		l.keys = append(l.keys, &keyTale{id: key.ID, text: key.Key, made: written{box: c.names[i], at: time.Now(), sure: true}})
	}
}

func (c *chaos) revokeKey(ctx context.Context, l *ledger, i int, k *keyTale) {
	err := c.admins[i].RevokeKey(ctx, k.id)
	l.mu.Lock()
	defer l.mu.Unlock()
	if what := l.outcome("key revoked", err); what != "refused" {
		k.revoked = append(k.revoked, written{box: c.names[i], at: time.Now(), sure: what == "done"})
	}
}

// label keeps the writes of one box in order: what a box writes later
// has to win over what it wrote before, whatever its clock said.
func (c *chaos) label(ctx context.Context, l *ledger, i, n int, labelled string) {
	c.labelMu[i].Lock()
	defer c.labelMu[i].Unlock()
	value := strconv.Itoa(n)
	_, err := c.admins[i].SetNode(ctx, ui.NodeRequest{Node: labelled, Labels: map[string]string{"by-" + c.names[i]: value}})
	l.mu.Lock()
	defer l.mu.Unlock()
	if what := l.outcome("label", err); what != "refused" {
		l.labels[c.names[i]] = append(l.labels[c.names[i]], written{box: c.names[i], at: time.Now(), sure: what == "done", value: value})
	}
}

func (c *chaos) scale(ctx context.Context, l *ledger, i, replicas int) {
	_, err := c.admins[i].SetModel(ctx, ui.ModelRequest{Model: modelFlex, Replicas: &replicas})
	l.mu.Lock()
	defer l.mu.Unlock()
	if what := l.outcome("scale", err); what != "refused" {
		l.scales = append(l.scales, written{box: c.names[i], at: time.Now(), sure: what == "done", value: strconv.Itoa(replicas)})
	}
}

// loss is an acknowledged write that is gone although a surviving store held it.
type loss string

// missing compares what the mesh shows with what was acknowledged.
func (l *ledger) missing(s state, line *timeline, boxes []string, end time.Time) (lost []loss, excused int) {
	judge := func(w written, format string, args ...any) {
		if held := line.survivors(boxes, w.box, w.at, end); len(held) > 0 {
			lost = append(lost, loss(fmt.Sprintf(format, args...)+fmt.Sprintf(" (on %s at %s; held by %v)", w.box, w.at.Format(time.TimeOnly), held)))
			return
		}
		excused++
	}
	for _, k := range l.keys {
		shown := slices.Contains(s.keys, k.id)
		sure := slices.DeleteFunc(slices.Clone(k.revoked), func(w written) bool { return !w.sure })
		switch {
		case len(sure) > 0 && shown:
			for _, w := range sure {
				judge(w, "the end of key %s", k.id)
			}
		case len(k.revoked) == 0 && !shown:
			judge(k.made, "key %s", k.id)
		}
	}
	for box, writes := range l.labels {
		lost = append(lost, l.staleLabel(s.labels["by-"+box], writes, judge)...)
	}
	if n := len(l.scales); n > 0 && !slices.ContainsFunc(l.scales, func(w written) bool { return w.value == s.scale }) {
		lost = append(lost, loss(fmt.Sprintf("%s has %s replicas, which nobody asked for", modelFlex, s.scale)))
	}
	return lost, excused
}

// staleLabel: what one box alone writes stands at its last acknowledged value
// or at a later one that nobody acknowledged.
func (l *ledger) staleLabel(shown string, writes []written, judge func(written, string, ...any)) []loss {
	at := slices.IndexFunc(writes, func(w written) bool { return w.value == shown })
	for i := len(writes) - 1; i > at; i-- {
		if writes[i].sure {
			judge(writes[i], "label %s, instead of which %q is shown", writes[i].value, shown)
			break
		}
	}
	return nil
}
