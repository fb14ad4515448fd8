package router

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/router/affinity"
	"llmgw/router/openai"
	"llmgw/router/relay"
)

// maxAttempts is the budget of one request, over all replicas and reasons.
const maxAttempts = 3

// modelHeader says which model answered, of an alias or a route.
const modelHeader = "X-Llmgw-Model"

// inference is a request that an engine is to answer.
type inference struct {
	t         *request
	needs     catalog.Ability // of the replica; empty: all have it
	loadOnly  func() []byte   // the answer of a request that only wants its model loaded; nil: it wants more
	own       shaped          // the request as it came
	other     *shaped         // as another API has it; nil: not needed yet
	multipart *openai.Form    // of a route whose body is one; nil: it is JSON
	called    *shaped         // with a tool called by schema; nil: not needed yet
	stream    bool            // the client gets a stream of events
	band      band
	means     meaning
	header    http.Header // for the engine
	asked     map[tried]bool
	query     affinity.Query
	filter    *openai.UsageFilter // takes out what the client did not ask for; nil: nothing
	account   account
	view      ModelView     // of the model that answers
	last      error         // why the last attempt failed
	failed    *openai.Error // what was found in translating a whole answer
	cut       bool          // the client has a part of an answer that cannot be ended
	spoke     time.Duration // into the wait, when a waiting client was last sent anything
	note      string        // what it was told then
}

func (r *Router) infer(t *request) {
	defer r.running.Add(-1)
	if n, most := r.running.Add(1), r.maxInFlight.Load(); most > 0 && n > most {
		t.fail(crowded(int(most)))
		return
	}
	i, e := t.prepare()
	switch {
	case e != nil:
	case wantsExplanation(t.req.Header):
		e = i.explain()
	default:
		defer i.charge() // first, so that a fault in between holds nothing
		e = i.run()
	}
	if e != nil && (i == nil || i.stream || !t.out.committed) {
		t.fail(e)
		return
	}
	if e != nil {
		t.code, i.cut = e.Status, true
	}
	if i.cut {
		// Only a cut connection tells the client that its answer is not whole.
		panic(http.ErrAbortHandler)
	}
}

// run asks one replica after the other until one answers, and waits for one
// while none is loaded. Nil: the client has an answer, or has left.
func (i *inference) run() *openai.Error {
	ctx := i.t.req.Context()
	for range maxAttempts {
		o, e := i.look()
		if e == nil {
			// Before the wait: what may not run is not loaded for.
			e = i.admit(ctx, o)
		}
		if e == nil && len(o.replicas) == 0 {
			if _, ok := o.loadable(); ok {
				o, e = i.awaitReplica(ctx, o)
			}
		}
		if ctx.Err() != nil || e == nil && len(o.views) == 0 {
			i.t.gone()
			return nil
		}
		if e != nil {
			return e
		}
		i.view = o.views[0]
		if i.loadOnly != nil {
			i.t.raw(i.loadOnly())
			return nil
		}
		pass, e := i.passFor(ctx, o)
		if e != nil {
			return e
		}
		if ctx.Err() != nil {
			pass.end()
			i.t.gone()
			return nil
		}
		replica, ticket := i.t.r.pick(o.replicas, i.asked, i.query)
		pass.end()
		if ticket == nil {
			break
		}
		i.view = o.view(replica.Model)
		i.asked[tried{replica.key(), replica.Epoch}] = true
		err := i.attempt(ctx, replica, i.t.r.count(ticket, replica.Model, i.query.Whole))
		if err == nil {
			return i.failed
		}
		if ctx.Err() != nil || errors.Is(err, relay.ErrClientGone) {
			i.t.gone()
			return nil
		}
		i.last = err
		i.t.r.complain("relay failed before its first byte", replica, i.t.id, err)
	}
	if i.last == nil {
		return notLoaded(i.view)
	}
	if e := outsideFailed(i.view, i.last); e != nil {
		return e
	}
	return unserved(i.view, i.last)
}

// passFor waits until a replica has room, before the first attempt. Later ones
// have waited already.
func (i *inference) passFor(ctx context.Context, o offers) (*pass, *openai.Error) {
	if i.last != nil || len(o.replicas) == 0 {
		return nil, nil
	}
	return i.queue(ctx, o)
}

// attempt has one replica answer, which was counted. An error means that the
// client got nothing of an answer, and another replica may be asked.
func (i *inference) attempt(ctx context.Context, replica Replica, use *use) error {
	r := i.t.r
	defer use.done()
	// What an attempt before told is not what this one uses.
	i.account.meter = openai.UsageMeter{Images: i.needs == catalog.AbilityPictures}
	i.t.model, i.t.server = label(i.view, replica), replica.Node
	i.t.out.Header().Set(modelHeader, i.view.Model.Name)
	r.breakers.asks(replica.key(), r.now())
	shape, e := i.shapeFor(replica.Lacks)
	if e != nil || shape == nil {
		return errUnable // able had left it out
	}
	shape = i.linked(shape)
	x, done, err := i.start(ctx, replica, i.callFor(known(i.view, replica), replica, shape))
	if err != nil {
		i.had(ctx, replica)
		i.judge(ctx, replica, 0, err)
		return err
	}
	defer done()
	out, into := i.sink(shape)
	answer := relay.Pump(x, out, relay.Options{
		Dialect: shape.dialect,
		Mend:    true,
		Errors:  i.t.route.dialect,
		Whole:   !i.stream,
		Failure: func(error) *openai.Error { return i.brokeOff(replica) },
		Origin:  i.t.origin(),
		Now:     r.now,
		First:   use.first,
		Meter:   &i.account.meter,
		Ending: func() {
			i.account.engine, i.account.status = &replica, http.StatusOK
			i.charge()
		},
		Filter:   i.filter,
		Watchdog: i.watchdog(shape),
		Usage:    i.own.req.IncludeUsage || shape.into != nil,
	})
	use.learn(&i.account.meter)
	if into != nil && into.heldBack() && answer.Err != nil && ctx.Err() == nil {
		// The client was sent nothing of it.
		answer.Began = false
	}
	if answer.Began {
		i.account.engine, i.account.status = &replica, answer.Status
	}
	i.had(ctx, replica)
	i.judge(ctx, replica, answer.Status, answer.Err)
	r.metrics.relayed.Add(float64(answer.Bytes))
	i.timed(answer)
	if answer.Err != nil && !answer.Began {
		return answer.Err
	}
	i.settle(ctx, replica, answer)
	if into != nil && answer.Sound {
		i.failed = into.finish()
	}
	return nil
}

// had notes that a replica was at work for a client that has left: it counts,
// though nothing of an answer came.
func (i *inference) had(ctx context.Context, replica Replica) {
	if ctx.Err() != nil && i.account.engine == nil {
		i.account.engine = &replica
	}
}

// watchdog ends an answer that only repeats itself; nil: the model has none, or
// the stream cannot be watched.
func (i *inference) watchdog(shape *shaped) *openai.Watchdog {
	if !i.view.Model.Limits.EndRepetition || !i.stream || shape.dialect != openai.Chat && shape.dialect != openai.Messages || shape.req.N.N > 1 {
		return nil
	}
	return openai.NewWatchdog(openai.DefaultRepetition, shape.dialect)
}

// sink is where the answer goes: to the client, or first into its API.
func (i *inference) sink(shape *shaped) (relay.Sink, *translated) {
	if shape.into == nil {
		return i.t.out, nil
	}
	t := &translated{answer: i.t.out, into: shape.into, dialect: i.t.route.dialect}
	return t, t
}

// timed notes when the tokens came.
func (i *inference) timed(answer relay.Answer) {
	if answer.FirstByte.IsZero() {
		return
	}
	m := i.t.r.metrics
	m.firstByte.WithLabelValues(i.t.route.name, i.t.model).Observe(answer.FirstByte.Sub(i.t.began).Seconds())
	if used, told := i.account.meter.Usage(); told && i.stream && used.Output > 1 {
		m.perToken.WithLabelValues(i.t.model).Observe(i.t.r.now().Sub(answer.FirstByte).Seconds() / float64(used.Output-1))
	}
}

// judge counts an attempt, and what it says of its replica.
func (i *inference) judge(ctx context.Context, replica Replica, status int, err error) {
	r, kind := i.t.r, kindRemote
	switch {
	case replica.Local:
		kind = kindLocal
	case replica.abroad():
		kind = kindOutside
	}
	outcome := outcomeOf(ctx, err)
	r.metrics.relays.WithLabelValues(kind, outcome).Inc()
	v := undecided
	switch {
	case outcome == outcomeBroken, outcome == outcomeOK && status >= http.StatusInternalServerError:
		v = failed
	case outcome == outcomeOK:
		v = worked
	}
	var refusal *relay.Refusal
	if errors.As(err, &refusal) && refusal.Kind == relay.RefusedEngine {
		v = failed
	}
	r.breakers.ends(replica.key(), v, r.now())
}

// settle notes how an answer ended that the client has seen something of.
func (i *inference) settle(ctx context.Context, replica Replica, answer relay.Answer) {
	switch {
	case answer.Err == nil:
	case ctx.Err() != nil || errors.Is(answer.Err, relay.ErrClientGone):
		i.t.gone()
	default:
		i.t.code = http.StatusBadGateway
		i.cut = !answer.Sound
		i.t.r.complain("answer broke off", replica, i.t.id, answer.Err)
	}
}

// brokeOff says whose fault it is that an answer ends early. A holder whose
// engine dies says so itself; silence means that the holder is lost.
func (i *inference) brokeOff(replica Replica) *openai.Error {
	switch {
	case replica.Local:
		return brokeOff(i.view.Model.Name)
	case replica.abroad():
		return providerBroke(replica.Provider)
	}
	return holderLost(i.view.Model.Name, replica)
}

// start opens the way to a replica. The returned function frees it.
func (i *inference) start(ctx context.Context, replica Replica, call *relay.Call) (*relay.Exchange, func(), error) {
	return i.t.r.reach(ctx, replica, call, relay.Hop{
		Model: replica.asked(), Slot: replica.Slot, Epoch: replica.Epoch, Digest: replica.Digest,
		Key: i.t.key.ID, RequestID: i.t.id, Session: i.query.Root,
	}, i.waiting(replica))
}

// reach sends a call to a replica of this node, of another one, or to a provider.
// The returned function frees the way.
func (r *Router) reach(ctx context.Context, replica Replica, call *relay.Call, hop relay.Hop, wait relay.Wait) (*relay.Exchange, func(), error) {
	if replica.abroad() {
		return r.reachOutside(ctx, replica, call, wait)
	}
	if !replica.Local {
		x, err := r.reachRemote(ctx, replica, call, hop, wait)
		if err != nil {
			return nil, nil, err
		}
		return x, x.Close, nil
	}
	target, release, err := r.target(hop.Model, replica.Epoch, replica.Digest)
	if err != nil {
		return nil, nil, err
	}
	x, err := r.startEngine(ctx, target, call, wait)
	if err != nil {
		release()
		return nil, nil, err
	}
	if replica.Provider == nil {
		r.remember(conversation{replica.Model, replica.Slot, hop.Session}, x.Status, hop.Key, call.Path, call.Body)
	}
	return x, func() { x.Close(); release() }, nil
}

func (r *Router) reachRemote(ctx context.Context, replica Replica, call *relay.Call, hop relay.Hop, wait relay.Wait) (*relay.Exchange, error) {
	opening, cancel := context.WithTimeout(ctx, r.cfg.Limits.Connect)
	defer cancel()
	stream, err := r.cfg.Mesh.Open(opening, replica.Peer, mesh.ProtocolInfer)
	if err != nil {
		return nil, &holderError{replica, &relay.BrokenError{Stage: relay.StageConnect, Err: err}}
	}
	x, err := relay.StartRemote(ctx, stream, call, hop, r.cfg.Limits, wait)
	if broken := (*relay.BrokenError)(nil); errors.As(err, &broken) && !relay.IsTimeout(err) {
		return nil, &holderError{replica, err}
	}
	return x, err
}

var errUnable = errors.New("the replica lacks what is asked for")

// Reasons to end the wait for a holder's first byte.
var (
	errSilent   = errors.New("its box is not heard any more")
	errVanished = errors.New("the replica is gone and another is there")
)

// lost says why a replica that has not answered yet is not waited for any
// longer: its box fell silent, or it serves no more and another does. A local
// one, or a provider, is never given up: its connection tells of its end.
func (i *inference) lost(replica Replica) error {
	r := i.t.r
	if replica.Local || replica.abroad() {
		return nil
	}
	if r.cfg.Alive != nil && !r.cfg.Alive(replica.Peer) {
		return errSilent
	}
	o, e := i.look()
	if e != nil {
		return nil
	}
	// A new epoch of the same replica is the same process.
	if slices.ContainsFunc(o.replicas, func(c Replica) bool { return c.key() == replica.key() }) {
		return nil
	}
	if len(open(o.replicas, i.asked)) > 0 {
		return errVanished
	}
	return nil
}

func outcomeOf(ctx context.Context, err error) string {
	var refusal *relay.Refusal
	switch {
	case err == nil:
		return outcomeOK
	case ctx.Err() != nil || errors.Is(err, relay.ErrClientGone):
		return outcomeAborted
	case errors.As(err, &refusal), keyFault(err):
		return outcomeRefused
	}
	return outcomeBroken
}

// complain logs a failure of the mesh's own; not each, as they come in swarms.
func (r *Router) complain(what string, replica Replica, id string, err error) {
	if !r.quiet.allow(r.now()) {
		return
	}
	r.cfg.Log.Warn(what, slog.String("model", replica.Model), slog.String("holder", replica.Peer),
		slog.String("request_id", id), slog.Any("error", err))
}
