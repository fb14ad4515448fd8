package lab

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"llmgw/ui"
)

// chaos is the stage of one run.
type chaos struct {
	*Lab
	boxes   []*Box // a to e; e has a small disk
	laptop  *Box   // where the clients are; nothing is done to it
	admins  []*ui.Client
	line    *timeline
	names   []string
	clocks  []time.Duration
	clients *http.Client
	labelMu []sync.Mutex  // one a box: see label
	away    []atomic.Bool // a wiped box is not of this mesh until it joined again
	counts  map[string]int
	notes   []string // what happened that no plan had
	returns sync.WaitGroup
	mu      sync.Mutex
}

// event is the begin or the end of a fault.
type event struct {
	at time.Duration
	do func()
}

// carryOut runs the plan and returns when all of it is undone.
func (c *chaos) carryOut(faults []fault) {
	began := time.Now()
	var events []event
	for _, f := range faults {
		var undo func()
		events = append(events,
			event{f.at, func() { c.counts[f.kind]++; undo = c.inflict(f) }},
			event{f.at + f.lasts, func() { undo() }})
	}
	slices.SortStableFunc(events, func(x, y event) int { return int(x.at - y.at) })
	for _, e := range events {
		time.Sleep(time.Until(began.Add(e.at)))
		e.do()
	}
	c.returns.Wait()
}

// inflict begins a fault and returns what ends it.
func (c *chaos) inflict(f fault) (undo func()) {
	b := c.boxes[f.box]
	c.tb.Logf("%v", f)
	switch f.kind {
	case faultPair, faultOneWay:
		return c.cutPair(b, c.boxes[f.other], f.kind == faultPair)
	case faultFull:
		b.FillDisk()
		return func() { c.freeDisk(b) }
	case faultLoss, faultSlow: // no excuse for a failed request
		b.hamper(f.kind)
		return b.Heal
	}
	settle := c.line.disturb(b.Name, f.kind)
	switch f.kind {
	case faultKill:
		b.Kill()
	case faultPower:
		b.Crash()
	case faultStop:
		b.Stop()
	case faultClock:
		b.Stop()
		c.clocks[f.box] = f.clock
		b.SetClock(f.clock)
	case faultPause:
		b.Pause()
		return func() { b.Resume(); settle() }
	case faultWipe:
		return c.wipe(f, settle)
	default:
		cuts := map[string]func(){faultCut: b.Cut, faultUnplug: b.Unplug, faultMute: b.Mute, faultDeaf: b.Deafen}
		cuts[f.kind]()
		return func() { b.Heal(); settle() }
	}
	return func() { c.restart(b, settle) }
}

// slowLink fits heartbeats and requests, with a wait.
const slowLink = "tbf rate 2mbit burst 16kb latency 400ms"

func (b *Box) hamper(kind string) {
	b.tb.Helper()
	if kind == faultSlow {
		b.Shape(slowLink)
		return
	}
	b.Lose(10)
}

func (c *chaos) cutPair(b, other *Box, both bool) (undo func()) {
	ends := []func(){c.line.part(b.Name, other.Name)}
	b.CutTo(other)
	if both {
		ends = append(ends, c.line.part(other.Name, b.Name))
		other.CutTo(b)
	}
	return func() {
		b.HealTo(other)
		other.HealTo(b)
		for _, end := range ends {
			end()
		}
	}
}

// restart starts a daemon; its fault ends once its API answers.
func (c *chaos) restart(b *Box, settle func()) {
	b.Launch()
	api := c.laptop.FreshClient()
	c.returns.Go(func() {
		for range 600 {
			if resp, err := api.Get(b.URL() + "/healthz"); err == nil {
				_ = resp.Body.Close()
				settle()
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		c.note("%s did not answer 30 s after its start", b.Name)
	})
}

func (c *chaos) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// wipe takes the disk away; the box comes back as a stranger with a true clock
// and joins by a token.
func (c *chaos) wipe(f fault, settle func()) (undo func()) {
	b := c.boxes[f.box]
	c.away[f.box].Store(true)
	b.Crash()
	b.Wipe()
	c.line.wiped(b.Name)
	c.clocks[f.box] = 0
	b.SetClock(0)
	return func() {
		b.Launch()
		c.returns.Go(func() { c.rejoin(f.box); settle() })
	}
}

// rejoin asks one box after the other for a token, since any may be away.
func (c *chaos) rejoin(i int) {
	var last error
	for n := range 60 {
		issuer := n % 2 // the two boxes whose clocks are true
		if last = c.joinBy(i, issuer); last == nil {
			c.away[i].Store(false)
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	c.note("%s could not join again: %v", c.names[i], last)
}

func (c *chaos) joinBy(joiner, issuer int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	token, err := c.admins[issuer].NewToken(ctx, ui.TokenRequest{})
	if err != nil {
		return fmt.Errorf("token of %s: %w", c.names[issuer], err)
	}
	_, err = c.admins[joiner].Join(ctx, ui.JoinRequest{Token: token.Token})
	return err
}

// freeDisk ends a full disk. A daemon that did not survive it is started again.
func (c *chaos) freeDisk(b *Box) {
	b.FreeDisk()
	if b.Running() {
		return
	}
	c.note("the full disk ended the daemon of %s: %v", b.Name, b.daemon.cmd.ProcessState)
	c.restart(b, c.line.disturb(b.Name, faultFull))
}
