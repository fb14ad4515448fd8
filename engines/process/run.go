package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"llmgw/engines"
	"llmgw/mesh/catalog"
)

// step is one state of a replica; it returns the next one, nil at the end.
type step func() step

func (r *replica) run(first step) {
	defer close(r.ended)
	for s := first; s != nil; {
		s = s()
	}
}

// errWoken means that a wish came up while an answer was awaited.
var errWoken = errors.New("a wish came up")

// errEnded means that the process ended while an answer was awaited.
var errEnded = errors.New("engine ended")

// await asks the engine beside the loop, so that a wish or the end of the
// process is seen at once. An answer that comes too late is dropped.
func await[T any](r *replica, limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	answers := make(chan answer, 1)
	go func() {
		v, err := f(ctx)
		answers <- answer{v, err}
	}()
	var none T
	select {
	case a := <-answers:
		return a.value, a.err
	case <-r.kick:
		r.poke() // the loop shall see it too
		return none, errWoken
	case <-r.engine.watch.exited:
		return none, errEnded
	}
}

// launch starts the process that is wanted.
func (r *replica) launch() step {
	w := r.wishes()
	if w.leave {
		return nil
	}
	if w.shard == nil {
		return r.gone
	}
	r.update(func(v *catalog.ReplicaStatus) { r.describe(*w.shard) })
	p, err := r.prepare(context.Background(), *w.shard)
	if err != nil {
		return r.failed(err)
	}
	e, err := r.spawn(p)
	if err != nil {
		return r.crashed(err.Error())
	}
	r.engine = e
	r.showRun(false)
	r.log.Info("engine started", slog.Int("pid", e.record.PID), slog.Int("port", e.record.Port))
	r.enter(catalog.ReplicaStarting, "")
	return r.load
}

// showRun puts the present process into the view.
func (r *replica) showRun(adopted bool) {
	rec := r.engine.record
	r.update(func(v *catalog.ReplicaStatus) {
		v.PID, v.Adopted, v.LastLines = rec.PID, adopted, nil
		r.target = Target{
			URL: baseURL(rec.Port), Key: rec.Key, Model: r.id.model, Slot: r.id.slot, Epoch: rec.Epoch,
			Digest: rec.Shard.Model.Source.Digest, Engine: rec.Shard.Profile.Engine, Upstream: rec.Shard.Model.Name,
		}
	})
}

// heed compares the wish with what runs. It returns nil when the process may
// go on, and ok false when the goroutine shall end.
func (r *replica) heed() (next step, ok bool) {
	w := r.wishes()
	switch {
	case w.leave:
		r.engine.watch.stop()
		return nil, false
	case w.shard == nil:
		return r.stopping(w.reason), true
	}
	print, err := fingerprint(*w.shard)
	if err == nil && print != r.engine.record.Fingerprint {
		return r.stopping("model or profile changed"), true
	}
	r.takeOver(*w.shard)
	return nil, true
}

// takeOver keeps the process for a shard that asks for the same one.
func (r *replica) takeOver(shard catalog.Shard) {
	e := r.engine
	if e.record.Epoch == shard.Epoch && sameShard(e.record.Shard, shard) {
		return
	}
	e.record.Epoch, e.record.Shard = shard.Epoch, shard
	if err := writePidfile(r.dir, e.record); err != nil {
		r.log.Warn("pidfile not updated", slog.Any("error", err))
	}
	r.update(func(*catalog.ReplicaStatus) {
		r.describe(shard)
		r.target.Epoch = shard.Epoch
	})
	r.sup.cfg.OnChange()
}

// load looks at the engine until it is healthy, and then checks it.
func (r *replica) load() step {
	tick := time.NewTicker(r.sup.cfg.Timing.Poll)
	defer tick.Stop()
	for {
		select {
		case <-r.engine.watch.exited:
			return r.crashed(r.exitReason("while loading"))
		case <-r.kick:
			if next, ok := r.heed(); next != nil || !ok {
				return next
			}
			continue
		case <-tick.C:
		}
		health, answers, woken := r.look()
		if woken {
			continue
		}
		now := r.sup.cfg.Now()
		logged, err := r.engine.tail.poll()
		if err != nil {
			r.log.Warn("engine log not readable", slog.Any("error", err))
		}
		r.engine.progress.see(sight{
			logBytes: logged, rssBytes: residentBytes(r.engine.record.PID), answers: answers, health: health,
		}, now)
		if health == engines.HealthOK {
			if next := r.warm(); next != nil {
				return next
			}
		} else if answers {
			r.enter(catalog.ReplicaLoading, "")
		}
		if idle := r.engine.progress.idle(now); idle >= r.sup.cfg.Timing.Stall {
			return r.giveUp(fmt.Sprintf("load stands still: no log line, memory or health change for %s", idle.Round(time.Millisecond)))
		}
	}
}

// look asks for health once. woken means that the question was cut short by
// something that the loop must see first.
func (r *replica) look() (health engines.Health, answers, woken bool) {
	health, err := await(r, r.sup.cfg.Timing.Probe, r.engine.ask.health)
	woken = errors.Is(err, errWoken) || errors.Is(err, errEnded)
	return health, err == nil, woken
}

// warm checks a healthy engine. It returns nil when a later look may find what
// is missing now.
func (r *replica) warm() step {
	e := r.engine
	if !e.record.group().owns(e.record.Port) {
		// Somebody else answers there. Ours will end when it finds the port
		// taken.
		r.enter(catalog.ReplicaStarting, fmt.Sprintf("port %d is held by another process", e.record.Port))
		return nil
	}
	r.enter(catalog.ReplicaWarming, "")
	props, err := r.check()
	switch {
	case errors.Is(err, errWoken) || errors.Is(err, errEnded) || cutOff(err):
		return nil // the loop sees why
	case err != nil:
		return r.giveUp(err.Error())
	}
	e.props, e.record.Ready = props, true
	// A wrapper may have become another program by now.
	if hash, err := argvHash(e.record.PID); err == nil {
		e.record.ArgvHash = hash
	}
	if err := writePidfile(r.dir, e.record); err != nil {
		r.log.Warn("pidfile not updated", slog.Any("error", err))
	}
	r.history.Ready = true
	return r.serve
}

// cutOff tells whether a connection broke: then the process is about to end,
// and its own words say more than ours.
func cutOff(err error) bool {
	var transport *url.Error
	return errors.As(err, &transport) && !transport.Timeout()
}

// check asks for name, key and one token.
func (r *replica) check() (engines.Props, error) {
	a, rec, token := r.engine.ask, r.engine.record, r.engine.token
	props, err := await(r, 2*r.sup.cfg.Timing.Probe, func(ctx context.Context) (engines.Props, error) {
		if err := a.serves(ctx, rec.Shard.Model.Name); err != nil {
			return engines.Props{}, err
		}
		return a.props(ctx)
	})
	if err != nil {
		return props, err
	}
	return await(r, r.sup.cfg.Timing.Stall, func(ctx context.Context) (engines.Props, error) {
		return props, a.token(ctx, token)
	})
}

// serve watches a ready engine.
func (r *replica) serve() step {
	e := r.engine
	e.loaded = r.sup.cfg.Now()
	r.update(e.tell)
	r.measure()
	r.enter(catalog.ReplicaReady, "")
	defer r.followCache()()
	tick, load := time.NewTicker(r.sup.cfg.Timing.Health), time.NewTicker(r.sup.cfg.Timing.Load)
	defer tick.Stop()
	defer load.Stop()
	answered := r.sup.cfg.Now()
	for {
		select {
		case <-e.watch.exited:
			return r.crashed(r.exitReason("while serving"))
		case <-r.kick:
			if next, ok := r.heed(); next != nil || !ok {
				return next
			}
			continue
		case <-load.C:
			if r.working() {
				r.measure()
			}
			continue
		case <-tick.C:
		}
		r.followLog()
		r.keepCleared()
		health, _, woken := r.look()
		if woken {
			continue
		}
		now := r.sup.cfg.Now()
		if health == engines.HealthOK || r.busy() > 0 {
			answered = now
		}
		if silent := now.Sub(answered); silent >= r.sup.cfg.Timing.Hung {
			return r.giveUp(fmt.Sprintf("engine hangs: no good health answer for %s", silent.Round(time.Second)))
		}
	}
}
