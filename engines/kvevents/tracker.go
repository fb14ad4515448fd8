package kvevents

import (
	"errors"
	"fmt"
	"time"
)

const (
	// maxBlocks bounds what is remembered of one cache; engines have fewer by far.
	maxBlocks = 8 << 20
	// maxMedia bounds the tiers.
	maxMedia = 8
	// roomFor is how long what a full cache held is believed after it last had to
	// drop something, while it goes on: since then it may have had room.
	roomFor = 10 * time.Minute
	// retryAfter is the time between two replays of which the first failed.
	retryAfter = 30 * time.Second
)

// State is what is known of a cache.
type State struct {
	// Held are the tokens of the blocks in its largest tier. Where Complete is
	// false there may be more: blocks that were stored before anybody listened.
	Held     int64
	Complete bool
	// Room is how much it holds when it has to drop something, a mean; 0: it
	// dropped nothing for a while, or Held is not complete.
	Room int64
	// Cleared counts how often it was emptied, since the engine began where All, else
	// since somebody listened.
	Cleared uint64
	All     bool
}

// Tracker follows the numbered batches of one engine. The zero value has heard
// none.
type Tracker struct {
	tiers    map[string]*tier
	complete bool
	cleared  uint64
	room     int64
	dropped  time.Time // when something last was

	begun   bool
	all     bool  // the first batch that was applied is the engine's first
	applied int64 // number of the last batch that counts; -1: none
	live    int64 // number of the last batch that was heard live
	failed  time.Time
}

// tier is one medium.
type tier struct {
	blocks map[uint64]block
	held   int64 // tokens
}

// block counts how often it is stored: engines with several groups of layers
// tell it for each.
type block struct{ tokens, copies uint16 }

// State gives what is known.
func (t *Tracker) State(now time.Time) State {
	s := State{Held: t.held(), Complete: t.complete, Cleared: t.cleared, All: t.all}
	if t.complete && !t.dropped.IsZero() && now.Sub(t.dropped) < roomFor {
		s.Room = t.room
	}
	return s
}

func (t *Tracker) held() int64 {
	if at := t.tiers[t.largest()]; at != nil {
		return at.held
	}
	return 0
}

// largest is the tier that holds most; what a smaller one drops may be in it.
func (t *Tracker) largest() string {
	best, most := "", int64(-1)
	for medium, at := range t.tiers {
		if at.held > most || at.held == most && medium < best {
			best, most = medium, at.held
		}
	}
	return best
}

// Live takes in a batch as it was published. replay is the number from which on
// batches are missing that the engine may have kept; they go to Replay, and then
// this batch again to Live. It is -1 when nothing is missing, or when what is
// missing will not come.
func (t *Tracker) Live(number int64, events []Event, now time.Time) (replay int64) {
	if t.begun && number < t.live { // the engine counts from the beginning again
		t.forget()
		t.cleared++
		t.begun = false
	}
	if !t.begun {
		t.begun, t.applied, t.complete, t.failed = true, -1, true, time.Time{}
	}
	t.live = number
	if number > t.applied+1 && (t.failed.IsZero() || now.Sub(t.failed) >= retryAfter) && t.complete {
		return t.applied + 1
	}
	if number <= t.applied {
		return -1
	}
	if number > t.applied+1 {
		t.complete = false
	}
	t.apply(number, events, now)
	return -1
}

// ErrReplay is matched by errors of Replay.
var ErrReplay = errors.New("replay of KV events has a hole")

// Replay takes in one batch of a replay; they come in their order.
func (t *Tracker) Replay(number int64, events []Event, now time.Time) error {
	if number <= t.applied {
		return nil
	}
	if number != t.applied+1 {
		return fmt.Errorf("%w: %d follows %d", ErrReplay, number, t.applied)
	}
	t.apply(number, events, now)
	return nil
}

// Failed says that a replay did not bring what was missing. What was counted is
// not what the cache holds any more, so the count begins anew; it is complete
// again when the cache is emptied.
func (t *Tracker) Failed(now time.Time) {
	t.forget()
	t.complete, t.failed = false, now
	t.applied = t.live - 1
}

func (t *Tracker) apply(number int64, events []Event, now time.Time) {
	t.all = t.all || number == 0
	t.applied = number
	before, dropped := t.held(), false
	for _, e := range events {
		switch e.Kind {
		case Stored:
			t.store(e)
		case Removed:
			dropped = dropped || t.largest() == e.Medium
			t.remove(e)
		case Cleared:
			t.forget()
			t.cleared++
			t.complete = true
			before, dropped = 0, false
		}
	}
	// An engine drops what it needs the room of, never what it could keep, one block
	// after the other, and then stores: it was full before, or is after.
	if dropped {
		t.full(max(before, t.held()), now)
	}
}

// forget drops the count, not that it was kept.
func (t *Tracker) forget() { t.tiers, t.room, t.dropped = nil, 0, time.Time{} }

func (t *Tracker) store(e Event) {
	at := t.tiers[e.Medium]
	if at == nil {
		if len(t.tiers) == maxMedia {
			t.complete = false
			return
		}
		if t.tiers == nil {
			t.tiers = make(map[string]*tier)
		}
		at = &tier{blocks: make(map[uint64]block)}
		t.tiers[e.Medium] = at
	}
	for _, h := range e.Blocks {
		b, had := at.blocks[h]
		switch {
		case had && b.copies < 1<<16-1:
			b.copies++
		case !had && len(at.blocks) < maxBlocks:
			b = block{tokens: uint16(min(e.Tokens, 1<<16-1)), copies: 1}
			at.held += int64(b.tokens)
		default:
			t.complete = false
			continue
		}
		at.blocks[h] = b
	}
}

// full learns how much is held when something must go.
func (t *Tracker) full(held int64, now time.Time) {
	if held == 0 {
		return
	}
	if t.room == 0 {
		t.room = held
	}
	t.room += (held - t.room) / 16
	t.dropped = now
}

func (t *Tracker) remove(e Event) {
	at := t.tiers[e.Medium]
	if at == nil {
		return
	}
	for _, h := range e.Blocks {
		b, had := at.blocks[h]
		if !had {
			continue
		}
		if b.copies--; b.copies > 0 {
			at.blocks[h] = b
			continue
		}
		at.held -= int64(b.tokens)
		delete(at.blocks, h)
	}
}
