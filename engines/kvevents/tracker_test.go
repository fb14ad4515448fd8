package kvevents

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const blockSize = 16

func stored(hashes ...uint64) Event {
	return Event{Kind: Stored, Medium: defaultMedium, Blocks: hashes, Tokens: blockSize}
}

func removed(hashes ...uint64) Event {
	return Event{Kind: Removed, Medium: defaultMedium, Blocks: hashes}
}

// source is an engine: what its cache holds, and the batches that it has kept.
type source struct {
	blocks map[uint64]bool
	kept   [][]Event
	first  int64 // number of kept[0]
}

func (s *source) publish(e Event, keep int) (number int64) {
	switch e.Kind {
	case Stored:
		for _, h := range e.Blocks {
			s.blocks[h] = true
		}
	case Removed:
		for _, h := range e.Blocks {
			delete(s.blocks, h)
		}
	case Cleared:
		clear(s.blocks)
	}
	s.kept = append(s.kept, []Event{e})
	for len(s.kept) > keep {
		s.kept = s.kept[1:]
		s.first++
	}
	return s.first + int64(len(s.kept)) - 1
}

// hear is what follow does with a batch that arrives.
func (s *source) hear(k *Tracker, number int64, now time.Time) error {
	events := s.kept[number-s.first]
	from := k.Live(number, events, now)
	if from < 0 {
		return nil
	}
	var hole error
	for n := max(from, s.first); n <= number && hole == nil; n++ {
		hole = k.Replay(n, s.kept[n-s.first], now)
	}
	if hole != nil || k.Live(number, events, now) >= 0 {
		k.Failed(now)
		if again := k.Live(number, events, now); again >= 0 {
			return errors.New("it asks again for what did not come")
		}
	}
	return hole
}

// TestWhatIsCountedIsHeld loses batches, restarts the engine and has it forget what
// it kept: whatever the tracker calls complete is what the cache holds.
func TestWhatIsCountedIsHeld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &source{blocks: map[uint64]bool{}}
		keep := rapid.IntRange(1, 8).Draw(t, "kept batches")
		k, now := &Tracker{}, time.Unix(1_800_000_000, 0)
		cleared := uint64(0)
		for range rapid.IntRange(1, 80).Draw(t, "batches") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			if rapid.IntRange(0, 29).Draw(t, "restart") == 29 {
				*s = source{blocks: map[uint64]bool{}}
				k, cleared = &Tracker{}, 0 // as for each process: numbers alone do not tell
			}
			var e Event
			h := rapid.Uint64Range(0, 9).Draw(t, "block")
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 9:
				e = Event{Kind: Cleared}
			case 0, 1, 2:
				e = removed(h)
			default:
				if s.blocks[h] {
					continue // it is stored once
				}
				e = stored(h)
			}
			number := s.publish(e, keep)
			if rapid.IntRange(0, 3).Draw(t, "lost") == 3 {
				continue
			}
			if err := s.hear(k, number, now); err != nil && !errors.Is(err, ErrReplay) {
				t.Fatal(err)
			}
			got := k.State(now)
			if want := int64(len(s.blocks) * blockSize); got.Complete && got.Held != want {
				t.Fatalf("%d tokens are counted, %d are held", got.Held, want)
			}
			if got.Held < 0 || got.Room < 0 || got.Cleared < cleared {
				t.Fatalf("%+v after %d cleared", got, cleared)
			}
			cleared = got.Cleared
		}
	})
}

func TestHowMuchAFullCacheHolds(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var k Tracker
	number := int64(-1)
	live := func(events ...Event) State {
		number++
		if from := k.Live(number, events, now); from >= 0 {
			t.Fatalf("it asks for %d", from)
		}
		return k.State(now)
	}
	for h := range uint64(100) {
		if s := live(stored(h)); s.Room != 0 || s.Held != int64(h+1)*blockSize {
			t.Fatalf("nothing was dropped yet: %+v", s)
		}
	}
	for h := range uint64(200) {
		if s := live(removed(h), stored(h+100)); s.Room != 100*blockSize || s.Held != 100*blockSize {
			t.Fatalf("full at 100 blocks: %+v", s)
		}
	}
	// Running requests take half of it.
	for h := uint64(200); h < 250; h++ {
		live(removed(h))
	}
	for h := range uint64(200) {
		live(removed(h+250), stored(h+300))
	}
	if s := k.State(now); s.Held != 50*blockSize || s.Room < 50*blockSize || s.Room > 52*blockSize {
		t.Errorf("it holds half now: %+v", s)
	}
	now = now.Add(roomFor + time.Second)
	if s := k.State(now); s.Room != 0 || s.Held != 50*blockSize {
		t.Errorf("nothing was dropped for long: %+v", s)
	}
	if s := live(Event{Kind: Cleared}); s.Held != 0 || s.Cleared != 1 || !s.Complete {
		t.Errorf("emptied: %+v", s)
	}
}

func TestNumbersThatBeginAgainAreAnEmptyCache(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var k Tracker
	k.Live(0, []Event{stored(1, 2)}, now)
	k.Live(1, []Event{stored(3)}, now)
	k.Live(0, []Event{stored(4)}, now)
	if s := k.State(now); s.Held != blockSize || s.Cleared != 1 || !s.Complete {
		t.Errorf("%+v", s)
	}
}

func TestTiersAndCopies(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var k Tracker
	cpu := func(e Event) Event { e.Medium = "CPU"; return e }
	k.Live(0, []Event{stored(1, 2), stored(2), cpu(stored(1, 2, 3)), removed(7), cpu(removed(9)), {Kind: Removed, Medium: "disk", Blocks: []uint64{1}}}, now)
	if s := k.State(now); s.Held != 3*blockSize {
		t.Errorf("the larger tier has three blocks: %+v", s)
	}
	k.Live(1, []Event{cpu(removed(1, 2, 3)), removed(2)}, now)
	if s := k.State(now); s.Held != 2*blockSize {
		t.Errorf("block 2 has a copy left: %+v", s)
	}
	k.Live(2, []Event{removed(2), removed(2)}, now)
	if s := k.State(now); s.Held != blockSize {
		t.Errorf("block 1 is left: %+v", s)
	}
	for m := range maxMedia + 1 {
		k.Live(int64(3+m), []Event{{Kind: Stored, Medium: string(rune('a' + m)), Blocks: []uint64{1}, Tokens: 1}}, now)
	}
	if s := k.State(now); s.Complete || len(k.tiers) != maxMedia {
		t.Errorf("%d tiers are counted: %+v", len(k.tiers), s)
	}
}

func TestRoomIsLearntOfWhatIsFull(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var emptied Tracker
	emptied.Live(0, []Event{stored(1, 2, 3)}, now)
	emptied.Live(1, []Event{removed(1), {Kind: Cleared}, stored(4)}, now)
	if s := emptied.State(now); s.Room != 0 || s.Held != blockSize {
		t.Errorf("it was emptied in the batch in which it dropped something: %+v", s)
	}
	var tiers Tracker
	tiers.Live(0, []Event{stored(1, 2), {Kind: Stored, Medium: "CPU", Blocks: []uint64{1, 2, 3}, Tokens: blockSize}}, now)
	tiers.Live(1, []Event{removed(1), stored(4), {Kind: Stored, Medium: "CPU", Blocks: []uint64{4}, Tokens: blockSize}}, now)
	if s := tiers.State(now); s.Room != 0 || s.Held != 4*blockSize {
		t.Errorf("the larger tier has dropped nothing: %+v", s)
	}
}

func TestClearsCountFromTheEnginesBeginning(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	cleared := []Event{{Kind: Cleared}}
	var whole, late Tracker
	whole.Live(1, cleared, now) // asks for 0
	if err := whole.Replay(0, cleared, now); err != nil {
		t.Fatal(err)
	}
	whole.Live(1, cleared, now)
	if s := whole.State(now); !s.All || s.Cleared != 2 {
		t.Errorf("with a replay: %+v", s)
	}
	late.Live(1, cleared, now)
	late.Failed(now)
	late.Live(1, cleared, now)
	if s := late.State(now); s.All || s.Cleared != 1 {
		t.Errorf("without: %+v", s)
	}
}

// TestAReplayThatFailsIsNotAskedAgain: the engine searches all that it kept for
// each.
func TestAReplayThatFailsIsNotAskedAgain(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var k Tracker
	if from := k.Live(50, nil, now); from != 0 {
		t.Fatalf("it asks for %d", from)
	}
	k.Failed(now)
	for n := int64(50); n < 60; n += 2 {
		now = now.Add(time.Minute)
		if from := k.Live(n, []Event{stored(uint64(n))}, now); from >= 0 {
			t.Fatalf("after %d it asks for %d", n, from)
		}
	}
	if s := k.State(now); s.Complete || s.Held != 5*blockSize || s.Room != 0 {
		t.Errorf("%+v", s)
	}
	// What is emptied is known again, and worth a replay.
	k.Live(59, []Event{{Kind: Cleared}}, now)
	if from := k.Live(62, nil, now.Add(retryAfter)); from != 60 {
		t.Errorf("it asks for %d", from)
	}
}
