package router

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"llmgw/mesh"
	"llmgw/router/openai"
	"llmgw/router/relay"
)

// target finds an engine of this node and checks that it is what was chosen:
// an address may have been taken over by another model, and weights change.
func (r *Router) target(model string, epoch uint64, digest string) (relay.Target, func(), error) {
	target, release, err := r.cfg.Local.Target(model, epoch)
	if err != nil {
		return relay.Target{}, nil, err
	}
	if digest != "" && target.Digest != "" && digest != target.Digest {
		release()
		return relay.Target{}, nil, &relay.Refusal{Kind: relay.RefusedStale, Detail: "other weights"}
	}
	return target, release, nil
}

var errEngineKey = errors.New("the engine refuses the key of its own node")

// startEngine sends call to an engine of this node. An engine that refuses our
// key is none that we started: its answer is no client's business.
func (r *Router) startEngine(ctx context.Context, t relay.Target, call *relay.Call, wait relay.Wait) (*relay.Exchange, error) {
	x, err := r.startTarget(ctx, t, call, wait)
	if err != nil {
		return nil, err
	}
	if x.Status == http.StatusUnauthorized || x.Status == http.StatusForbidden {
		x.Close()
		return nil, &relay.BrokenError{Stage: relay.StageFirstByte, Err: errEngineKey}
	}
	return x, nil
}

// ServeInfer is the holder's side of one relay. It returns when s is done
// with; s is closed or reset in each case.
func (r *Router) ServeInfer(s mesh.Stream) {
	in, err := relay.Accept(s, r.cfg.Limits)
	if err != nil {
		if r.quiet.allow(r.now()) {
			r.cfg.Log.Warn("no relay request", slog.Any("error", err))
		}
		return
	}
	refusal := r.serveInbound(in)
	if refusal == nil {
		return
	}
	r.metrics.relays.WithLabelValues(kindServed, outcomeRefused).Inc()
	r.metrics.refusals.WithLabelValues(string(refusal.Kind)).Inc()
	in.Refuse(refusal)
}

// serveInbound answers in, unless it returns a refusal. What it holds, it has
// given back on return.
func (r *Router) serveInbound(in *relay.Inbound) *relay.Refusal {
	route, ok := relayPath(in.Path)
	if !ok || in.Method != http.MethodPost {
		return &relay.Refusal{Kind: relay.RefusedInvalid, Detail: "no such path"}
	}
	target, release, err := r.target(in.Hop.Model, in.Hop.Epoch, in.Hop.Digest)
	if err != nil {
		return asRefusal(err)
	}
	defer release()
	body, held, err := r.fill(in.Body(r.cfg.Limits.Idle), in.Length)
	defer r.bodies.give(held)
	switch {
	case errors.Is(err, errNoBudget), errors.Is(err, errBodyTooLarge):
		return &relay.Refusal{Kind: relay.RefusedBusy, Detail: err.Error()}
	case err != nil:
		r.ended(in, outcomeAborted)
		in.Abort()
		return nil
	}
	return r.relayInbound(in, route, target, body)
}

func (r *Router) relayInbound(in *relay.Inbound, route route, target relay.Target, body []byte) *relay.Refusal {
	ctx, cancel := in.Watch(context.Background())
	defer cancel(nil)
	call := &relay.Call{Path: route.path, Header: in.Header, Body: body}
	x, err := r.startEngine(ctx, target, call, nil)
	if err != nil {
		return r.notStarted(ctx, in, err)
	}
	defer x.Close()
	if target.Host == nil {
		r.remember(conversation{in.Hop.Model, target.Slot, in.Hop.Session}, x.Status, in.Hop.Key, route.path, body)
	}
	answer := relay.Pump(x, in, relay.Options{
		Dialect: route.dialect,
		Failure: func(error) *openai.Error { return brokeOff(shownModel(in.Hop.Model)) },
		Origin:  openai.Origin{Node: r.cfg.Node, RequestID: in.Hop.RequestID},
		Now:     r.now,
	})
	if answer.Err != nil && !answer.Began {
		return r.notStarted(ctx, in, answer.Err)
	}
	r.ended(in, outcomeOf(ctx, answer.Err))
	if !answer.Sound {
		in.Abort()
		return nil
	}
	// That the last bytes are not taken any more is the entry node's concern.
	_ = in.Finish()
	return nil
}

// notStarted ends a relay that no byte went out for.
func (r *Router) notStarted(ctx context.Context, in *relay.Inbound, err error) *relay.Refusal {
	if ctx.Err() == nil {
		return &relay.Refusal{Kind: relay.RefusedEngine, Detail: err.Error()}
	}
	r.ended(in, outcomeAborted)
	in.Abort()
	return nil
}

func (r *Router) ended(in *relay.Inbound, outcome string) {
	r.metrics.relays.WithLabelValues(kindServed, outcome).Inc()
	r.cfg.Log.Debug("relay ended", slog.String("model", in.Hop.Model), slog.String("entry", in.Peer),
		slog.String("request_id", in.Hop.RequestID), slog.String("key", in.Hop.Key), slog.String("outcome", outcome))
}

// asRefusal takes errors of Local that are no refusals for a replica that is
// not here: the entry node asks another.
func asRefusal(err error) *relay.Refusal {
	var refusal *relay.Refusal
	if errors.As(err, &refusal) {
		return refusal
	}
	return &relay.Refusal{Kind: relay.RefusedNotHere, Detail: err.Error()}
}
