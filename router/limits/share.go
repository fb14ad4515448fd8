package limits

import (
	"math"
	"time"
)

const (
	// busy is the part of a limit up to which a head admits without regard to others:
	// what they admit meanwhile and it has not heard of yet fits above it.
	busy = 0.8
	// horizon is how old what a head knows of the others may be: a message waits
	// 100 ms to be sent, travels as long, and may be lost twice.
	horizon = 400 * time.Millisecond
	// turnTime is one turn of a head, when what remains is less than each head's
	// share would have to be. At first it only listens for a horizon, so that what
	// was admitted in the turn before is known.
	turnTime = 2 * horizon
	// spare is the part that is kept back of what the heads have which are heard, while
	// others are not: what one side lets through too much, the other cannot make up for.
	spare = 0.01
	// floor is the part of what remains that is divided evenly among heads; the rest
	// goes by what they are asked for.
	floor = 0.2
)

// verdict is what one meter says of a request.
type verdict struct {
	ok    bool
	view  level
	wait  time.Duration
	short bool // only this head's share is too small
}

// judge says whether amount passes the limit under a policy.
//
// Under Share, let R be what remained a horizon ago, as far as all heads have heard
// of each other by now: what remains now, plus what this head admitted since. Each
// head admits within a horizon no more than its share of R; the shares add up to
// one, so all together admit no more than R before they hear of it. Heads that are
// not heard keep their part of the limit, and what they took of it counts for it.
func (l *Limiter) judge(m *meter, limit, amount uint64, policy Policy, now time.Time) verdict {
	v := verdict{view: l.read(m, now)}
	m.limit = limit
	want, top := float64(amount), float64(limit)
	if policy != Loose {
		if part := top * (1 - l.heads.heard()); part > 0 {
			top = (top - part) * (1 - spare)
			v.view.taken -= min(v.view.quiet, part)
		}
	}
	remains := top - v.view.taken
	if want > remains+1e-6 {
		v.wait = v.view.wait(m, want-remains)
		return v
	}
	if policy != Share || v.view.taken+want <= busy*top || v.view.others == 0 || l.heads.count() < 2 {
		v.ok = true
		return v
	}
	recent := float64(m.recent(now))
	mine := l.portion(v.view) * (remains + recent)
	switch {
	case recent+want <= mine:
		v.ok = true
	case want > mine && recent == 0 && l.heads.turn(now, int((remains+recent)/want)):
		v.ok = true
	default:
		v.short, v.wait = true, max(l.heads.untilTurn(now), time.Second)
	}
	return v
}

// portion is this head's share, by what it was asked for.
func (l *Limiter) portion(v level) float64 {
	even := 1 / float64(l.heads.count())
	if v.asked <= 0 {
		return even
	}
	return floor*even + (1-floor)*math.Max(v.asked-v.others, 0)/v.asked
}
