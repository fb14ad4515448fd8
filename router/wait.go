package router

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"llmgw/router/openai"
	"llmgw/router/relay"
)

const (
	// DefaultLoadWait is how long a request waits for its model: weights of a
	// large one take minutes to read.
	DefaultLoadWait = 10 * time.Minute
	// lookEvery is how often a waiting request looks at the catalog.
	lookEvery = 100 * time.Millisecond
	// doubt is how long a model must be out of reach before a wait for it ends:
	// placement makes room in several steps.
	doubt = 2 * time.Second
	// quietFor is how long a stream waits before its head is sent: up to then
	// a failure still has a status of its own.
	quietFor = 3 * time.Second
)

// Demand says that a request waits for a replica of a model, until release is
// called. An error says why requests cannot ask for one.
type Demand func(model string) (release func(), err error)

// awaitReplica waits until a replica may answer. It tells a streaming client
// how far the load is; nil and no replicas: the client has left.
func (i *inference) awaitReplica(ctx context.Context, o offers) (offers, *openai.Error) {
	r := i.t.r
	view, _ := o.loadable()
	if r.cfg.Demand != nil {
		release, err := r.cfg.Demand(view.Model.ID)
		if err == nil {
			defer release()
		} else {
			r.cfg.Log.Debug("a model is waited for without a demand", slog.String("model", view.Model.ID), slog.Any("error", err))
		}
	}
	i.note, i.spoke = "", 0
	stage, began, hopeless := "", time.Now(), time.Time{}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for waited := time.Duration(0); waited < time.Duration(r.loadWait.Load()); waited = time.Since(began) {
		select {
		case <-ctx.Done():
			return offers{}, nil
		case <-tick.C:
		}
		var e *openai.Error
		if o, e = i.look(); e != nil || len(o.replicas) > 0 {
			return o, e
		}
		now, ok := o.loadable()
		if ok {
			hopeless = time.Time{}
		} else if hopeless.IsZero() {
			hopeless = time.Now()
		} else if time.Since(hopeless) > doubt {
			return offers{}, notLoaded(o.views[0])
		}
		if ok {
			stage = now.Stage
		}
		if i.hold(waited, view.Model.Name+": "+stage) != nil {
			return offers{}, nil
		}
	}
	return offers{}, stillLoading(view, stage)
}

// hold keeps the connection of a waiting client in use, as proxies cut what is
// silent: a stream by comments that say what is waited for, other JSON by blanks
// before it. The first byte fixes the status at 200, so it comes late. An error
// means that the client has left.
func (i *inference) hold(waited time.Duration, note string) error {
	every := i.t.out.limits.KeepAlive
	due := i.spoke + every
	switch {
	case i.stream:
		if note != i.note && waited >= quietFor {
			due = waited
		}
	case !i.t.route.json:
		return nil
	case !i.t.out.committed:
		due = every * 8 / 3
	}
	if waited < due {
		return nil
	}
	i.spoke, i.note = waited, note
	if i.stream {
		return i.t.out.comment(i.t.route.dialect, oneLine(note))
	}
	return i.t.out.blank()
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// waitNote is what a stream is told while its replica reads the prompt.
const waitNote = "keep-alive"

// waiting keeps the client's connection in use while the engine reads the
// prompt, and watches whether the replica is still there.
func (i *inference) waiting(replica Replica) relay.Wait {
	i.note, i.spoke = waitNote, 0
	return func(waited time.Duration) error {
		// An answer in one piece keeps its status as long as it can.
		if i.stream || i.t.out.committed {
			if err := i.hold(waited, waitNote); err != nil {
				return errors.Join(relay.ErrClientGone, err)
			}
		}
		if err := i.lost(replica); err != nil {
			return &relay.BrokenError{Stage: relay.StageFirstByte, Err: err}
		}
		return nil
	}
}
