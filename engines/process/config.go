package process

import (
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"llmgw/engines"
)

// Config is what a Supervisor needs. Dir, Adapters and Binary are required.
type Config struct {
	Dir      string // pidfiles, logs and the engines' own directories; 0700
	Ports    [2]int // first and last port on loopback; zero: DefaultPorts
	Adapters map[string]engines.Adapter
	// Binary finds the absolute path of an engine's program.
	Binary func(engine, program string) (string, bool)
	// OnChange is called after each state change, from any goroutine. It must
	// not block.
	OnChange func()
	Log      *slog.Logger
	Now      func() time.Time
	Entropy  io.Reader             // keys and markers of runs
	Metrics  prometheus.Registerer // nil: none
	Timing   Timing                // zero fields take DefaultTiming
	Restart  Policy                // zero: DefaultPolicy
	// CgroupRoot is where cgroup v2 is mounted; empty: looked for. "none"
	// makes no cgroups.
	CgroupRoot string
}

// DefaultPorts are the loopback ports for engines.
var DefaultPorts = [2]int{8780, 8879}

// Timing is how long the supervisor waits for what.
type Timing struct {
	Poll   time.Duration // between looks at an engine that loads
	Health time.Duration // between looks at a ready engine
	Load   time.Duration // between looks at the load of one with requests
	Probe  time.Duration // limit of one health question
	// Stall ends a load in which nothing moves, and a first token that does
	// not come.
	Stall time.Duration
	// Hung restarts a ready engine that answered no health question for this
	// long while no request was in flight; with requests it is left alone,
	// because a busy engine is slow to answer.
	Hung  time.Duration
	Drain time.Duration // requests in flight may end for this long
	Grace time.Duration // between SIGTERM and SIGKILL
	Kill  time.Duration // after SIGKILL, until a survivor is reported
	Retry time.Duration // between looks whether the cause of failed is gone
}

// DefaultTiming suits engines that load tens of gigabytes from a disk.
func DefaultTiming() Timing {
	return Timing{
		Poll:   100 * time.Millisecond,
		Health: 5 * time.Second,
		Load:   2 * time.Second,
		Probe:  5 * time.Second,
		Stall:  3 * time.Minute,
		Hung:   time.Minute,
		Drain:  time.Minute,
		Grace:  10 * time.Second,
		Kill:   5 * time.Second,
		Retry:  15 * time.Second,
	}
}

func (t Timing) withDefaults() Timing {
	d := DefaultTiming()
	for _, f := range []struct{ value, def *time.Duration }{
		{&t.Poll, &d.Poll}, {&t.Health, &d.Health}, {&t.Load, &d.Load}, {&t.Probe, &d.Probe}, {&t.Stall, &d.Stall},
		{&t.Hung, &d.Hung}, {&t.Drain, &d.Drain}, {&t.Grace, &d.Grace}, {&t.Kill, &d.Kill}, {&t.Retry, &d.Retry},
	} {
		if *f.value <= 0 {
			*f.value = *f.def
		}
	}
	return t
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" || c.Binary == nil || len(c.Adapters) == 0 {
		return c, errors.New("open supervisor: directory, adapters and binary lookup are required")
	}
	if c.Ports == [2]int{} {
		c.Ports = DefaultPorts
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Entropy == nil {
		c.Entropy = rand.Reader
	}
	if c.OnChange == nil {
		c.OnChange = func() {}
	}
	if c.Restart == (Policy{}) {
		c.Restart = DefaultPolicy()
	}
	c.Timing = c.Timing.withDefaults()
	return c, nil
}
