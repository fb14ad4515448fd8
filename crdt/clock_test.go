package crdt_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"llmgw/crdt"
)

// disk stands for the place where the ceiling is kept.
type disk struct {
	wall    time.Time
	ceiling crdt.HLC
	saves   int
	err     error
}

func (d *disk) clock() *crdt.Clock {
	return crdt.NewClock(func() time.Time { return d.wall }, d.ceiling, func(c crdt.HLC) error {
		if d.err != nil {
			return d.err
		}
		d.ceiling = c
		d.saves++
		return nil
	})
}

func newDisk() *disk { return &disk{wall: time.UnixMilli(1_800_000_000_000)} }

func now(t interface{ Fatalf(string, ...any) }, c *crdt.Clock) crdt.HLC {
	stamp, err := c.Now()
	if err != nil {
		t.Fatalf("now: %v", err)
	}
	return stamp
}

func TestStampsNeverRepeatOrGoBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDisk()
		c, last := d.clock(), crdt.HLC(0)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"stamp", "stamp", "step", "restart", "follow"}).Draw(t, "do") {
			case "step":
				d.wall = d.wall.Add(time.Duration(rapid.Int64Range(-3600_000, 3600_000).Draw(t, "ms")) * time.Millisecond)
			case "restart":
				c = d.clock()
			case "follow":
				c.Observe(crdt.StampOf(d.wall.Add(time.Duration(rapid.Int64Range(0, 120).Draw(t, "s")) * time.Second)))
			}
			stamp := now(t, c)
			if stamp <= last {
				t.Fatalf("stamp %d after %d", stamp, last)
			}
			if stamp > d.ceiling {
				t.Fatalf("stamp %d issued above the saved ceiling %d", stamp, d.ceiling)
			}
			last = stamp
		}
	})
}

func TestClockFollowsTheWall(t *testing.T) {
	d := newDisk()
	if got := now(t, d.clock()); got != crdt.StampOf(d.wall) || !got.Time().Equal(d.wall) {
		t.Errorf("first stamp is %v, wall %v", got.Time(), d.wall)
	}
}

func TestCeilingIsSavedRarely(t *testing.T) {
	d := newDisk()
	c := d.clock()
	for range 1000 {
		now(t, c)
		d.wall = d.wall.Add(20 * time.Millisecond)
	}
	if d.saves > 3 {
		t.Errorf("20 s of stamps saved the ceiling %d times", d.saves)
	}
}

func TestNoStampWithoutACeiling(t *testing.T) {
	d := newDisk()
	d.err = errors.New("disk full")
	c := d.clock()
	if stamp, err := c.Now(); !errors.Is(err, d.err) {
		t.Fatalf("got stamp %d, error %v", stamp, err)
	}
	if _, err := c.After(5); !errors.Is(err, d.err) {
		t.Fatalf("after: %v", err)
	}
	d.err = nil
	now(t, c)
}

func TestObserveIsBounded(t *testing.T) {
	for _, tc := range []struct {
		name  string
		ahead time.Duration
		want  bool
	}{
		{"behind", -time.Hour, true},
		{"at the bound", time.Minute, true},
		{"over the bound", time.Minute + time.Millisecond, false},
		{"far future", 1000 * time.Hour, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDisk()
			c := d.clock()
			remote := crdt.StampOf(d.wall.Add(tc.ahead))
			if got := c.Observe(remote); got != tc.want {
				t.Errorf("followed: %v", got)
			}
			if stamp := now(t, c); (stamp > remote) != tc.want {
				t.Errorf("stamp %d against remote %d", stamp, remote)
			}
		})
	}
	if newDisk().clock().Observe(math.MaxUint64) {
		t.Error("followed the last stamp of all")
	}
}

func TestAfterBeatsTheFarFutureAndStaysHome(t *testing.T) {
	d := newDisk()
	c := d.clock()
	future := crdt.StampOf(d.wall.Add(1000 * time.Hour))
	stamp, err := c.After(future)
	if err != nil || stamp != future+1 {
		t.Errorf("after the future: %d, %v", stamp, err)
	}
	if next := now(t, c); next > crdt.StampOf(d.wall.Add(time.Minute)) {
		t.Errorf("the clock went along to %v", next.Time())
	}
	if stamp, err := c.After(7); err != nil || stamp < crdt.StampOf(d.wall) {
		t.Errorf("after an old stamp: %d, %v", stamp, err)
	}
	if _, err := c.After(math.MaxUint64); !errors.Is(err, crdt.ErrExhausted) {
		t.Errorf("after the last stamp: %v", err)
	}
}

func TestStampOfTimesBeforeTheEpoch(t *testing.T) {
	if got := crdt.StampOf(time.Unix(-5, 0)); got != 0 {
		t.Errorf("got %d", got)
	}
}
