package process

import (
	"time"

	"llmgw/engines"
)

// rssStep is the least growth of resident memory that counts: a waiting
// process may still touch a few pages.
const rssStep = 1 << 20 // bytes

// sight is one look at an engine that loads.
type sight struct {
	logBytes int64 // written so far
	rssBytes int64 // resident now; 0: unknown
	answers  bool
	health   engines.Health
}

// progress tells a slow load from one that stands still. It is pure: looks and
// times are passed in.
type progress struct {
	last  sight
	peak  int64     // highest resident memory that counted
	moved time.Time // last progress
}

func newProgress(now time.Time) *progress { return &progress{moved: now} }

// see takes a look and tells whether something moved since the last one.
func (p *progress) see(s sight, now time.Time) bool {
	moved := s.logBytes != p.last.logBytes || s.answers != p.last.answers || s.health != p.last.health
	if s.rssBytes >= p.peak+rssStep {
		p.peak = s.rssBytes
		moved = true
	}
	p.last = s
	if moved {
		p.moved = now
	}
	return moved
}

// idle is how long nothing has moved.
func (p *progress) idle(now time.Time) time.Duration { return now.Sub(p.moved) }
