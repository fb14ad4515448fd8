// Package crdtsim owns the simulator of llmgw's shared state: several boxes with real stores on disks in memory, joined by
// a network that loses, doubles, reorders and cuts, and hit by what happens to boxes: crashes, wiped disks, old backups,
// clones, clocks that step.
//
// [Run] is deterministic: the same [Config] gives the same run. Every random choice comes from the seed, nothing runs
// in parallel, and time is a number. After each step the invariants are checked on what the step touched; in the end
// the network is left quiet, everybody pulls from everybody, and all must hold the same bytes.
//
// Invariants:
//
//	grows       a row on a store only ever moves up in the order of the merge, so that no tombstone is undone
//	no loss     what a surviving store held is held by everybody in the end
//	no ghosts   nobody holds anything that no store acknowledged
//	equal       after quiet all stores hold the same bytes, but for tombstones, which each forgets in its own time; and
//	            the digest says so
//	money       each increment that a surviving store counted is counted once, folded or not, until its month is dropped,
//	            and then never again; a hard budget is never overspent, and no store's rights are ever negative
//	whole       in the end each store verifies
//	own rows    what a box made itself survives its absence and its re-seed
package crdtsim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// Config says what is simulated. The zero values stand for 4 boxes and 150 steps.
type Config struct {
	Seed  uint64
	Boxes int
	Steps int
	// Trace, when set, is told what happens, for looking at a seed that broke an invariant.
	Trace func(format string, args ...any)
}

// Report says what happened in a run.
type Report struct {
	Seed       uint64
	Steps      int
	Writes     int
	Faults     map[string]int
	Violations []string
}

// sim is one run.
type sim struct {
	cfg    Config
	rand   *rand.Rand
	wall   time.Time
	boxes  []*box
	report Report

	// written is the join of all that any store acknowledged; owed is the part of it that a store still held
	// after the last disk was lost.
	written, owed map[crdt.Key]crdt.Row
	// dead is the highest tombstone that was ever acknowledged for a key.
	dead map[crdt.Key]uint64
	// spent is what stores have counted of the soft budget, less what only lost disks had.
	spent crdt.Spend
	// forgets is set once a tombstone was collected somewhere.
	forgets bool
}

// Run makes one run. An error means that the simulation could not go on; broken invariants are in the report.
func Run(cfg Config) (Report, error) {
	if cfg.Boxes == 0 {
		cfg.Boxes = 4
	}
	if cfg.Steps == 0 {
		cfg.Steps = 150
	}
	if cfg.Trace == nil {
		cfg.Trace = func(string, ...any) {}
	}
	s := &sim{
		cfg: cfg, rand: rand.New(rand.NewPCG(cfg.Seed, 0x6c6c6d6777)),
		wall:    time.UnixMilli(1_800_000_000_000),
		report:  Report{Seed: cfg.Seed, Faults: map[string]int{}},
		written: map[crdt.Key]crdt.Row{}, owed: map[crdt.Key]crdt.Row{}, dead: map[crdt.Key]uint64{},
	}
	err := s.run()
	for _, b := range s.boxes {
		err = errors.Join(err, b.store.Close())
	}
	if err != nil {
		err = fmt.Errorf("simulate seed %d: %w", cfg.Seed, err)
	}
	return s.report, err
}

func (s *sim) run() error {
	for range s.cfg.Boxes {
		if err := s.add(store.NewDisk()); err != nil {
			return err
		}
	}
	if err := errors.Join(s.mint(s.boxes[0]), s.remember(s.boxes[0])); err != nil {
		return err
	}
	for range s.cfg.Steps {
		s.report.Steps++
		if err := s.step(); err != nil {
			return fmt.Errorf("step %d: %w", s.report.Steps, err)
		}
	}
	if err := s.quiet(); err != nil {
		return fmt.Errorf("quiet: %w", err)
	}
	if err := s.dropEverywhere(); err != nil {
		return fmt.Errorf("drop months: %w", err)
	}
	return errors.Join(s.checkEnd(), s.checkMoney())
}

// action is something that may happen in a step, with its share of all steps.
type action struct {
	weight int
	name   string
	do     func(*box) error
}

func (s *sim) actions() []action {
	return []action{
		{40, "write", s.write},
		{10, "spend", s.spend},
		{3, "fold", s.fold},
		{2, "drop", s.drop},
		{5, "use rights", s.useRights},
		{25, "deliver", s.deliver},
		{20, "pull some", s.pullSome},
		{3, "crash", s.crash},
		{3, "step clock", s.stepClock},
		{3, "cut", s.cut},
		{3, "heal", s.heal},
		{3, "leave", s.leave},
		{3, "come back", s.comeBack},
		{3, "collect", s.collect},
		{1, "leap", s.leap},
		{1, "wipe", s.wipe},
		{4, "roll back", s.rollBack},
		{2, "restore", s.restore},
		{1, "clone", s.clone},
	}
}

func (s *sim) step() error {
	s.wall = s.wall.Add(time.Duration(s.rand.IntN(2000)) * time.Millisecond)
	actions := s.actions()
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	n := s.rand.IntN(total)
	for _, a := range actions {
		if n -= a.weight; n < 0 {
			b := s.box()
			s.cfg.Trace("step %d: %s on %s", s.report.Steps, a.name, b.name)
			return a.do(b)
		}
	}
	return nil
}

func (s *sim) box() *box { return s.boxes[s.rand.IntN(len(s.boxes))] }

func (s *sim) violate(format string, args ...any) {
	s.report.Violations = append(s.report.Violations, fmt.Sprintf("step %d: ", s.report.Steps)+fmt.Sprintf(format, args...))
}

func (s *sim) count(fault string) { s.report.Faults[fault]++ }

// quiet ends all trouble and lets everybody pull from everybody until nobody can learn anything more. What is still
// in the network is dropped: gossip is only a hint.
func (s *sim) quiet() error {
	for _, b := range s.boxes {
		b.side, b.offset, b.inbox, b.off = 0, 0, nil, false
	}
	// Nothing waits aside any more: the clocks are right, and all stamps have come to lie in the past.
	s.wall = s.wall.Add(100 * time.Hour)
	for range 2 {
		if err := s.syncAll(); err != nil {
			return err
		}
		if err := s.mergeAnyway(); err != nil {
			return err
		}
	}
	for _, b := range s.boxes {
		if b.doubtful {
			// Nobody is left who could have noticed: an operator would wipe it.
			if err := s.wipe(b); err != nil {
				return err
			}
			b.doubtful = false
		}
	}
	return errors.Join(s.syncAll(), s.syncAll())
}

// mergeAnyway lets the boxes go on that are overdue still: there was nobody to re-seed from.
func (s *sim) mergeAnyway() error {
	for _, b := range s.boxes {
		if !slices.ContainsFunc(s.boxes, func(o *box) bool { return !o.store.Overdue(b.store.MeshUptime()) }) {
			s.count("nobody to re-seed from")
			return errors.Join(b.store.MergeNormally(b.store.MeshUptime()), s.settleDebts())
		}
	}
	return nil
}

func (s *sim) others(b *box) []*box {
	return slices.DeleteFunc(slices.Clone(s.boxes), func(o *box) bool { return o == b })
}
