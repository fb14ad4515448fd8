package sim

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// flushAt is how much of an unpaced stream is collected before it is sent.
const flushAt = 16 << 10 // bytes

// errCutOff is a simulated fault in the middle of an answer.
var errCutOff = errors.New("simulated fault")

// generate handles a route that answers with tokens.
func (s *Server) generate(shape shape) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q request
		if !readJSON(w, r, &q) {
			return
		}
		if missing := shape.missing(q); missing != "" {
			fail(w, http.StatusBadRequest, "invalid_request_error", "'"+missing+"' is required")
			return
		}
		if s.cfg.Params.Fail == FailToken {
			fail(w, http.StatusInternalServerError, "server_error", "simulated failure")
			return
		}
		p, err := s.plan(q)
		if err != nil {
			s.refuseContext(w, err)
			return
		}
		s.answer(w, r, shape, q, p)
	}
}

func (s *Server) refuseContext(w http.ResponseWriter, err error) {
	fields := map[string]any{"code": http.StatusBadRequest, "type": "exceed_context_size_error", "message": err.Error()}
	var tooLong contextError
	if errors.As(err, &tooLong) {
		fields["n_prompt_tokens"], fields["n_ctx"] = tooLong.prompt, tooLong.context
	}
	failWith(w, http.StatusBadRequest, fields)
}

// answer generates with a slot and counts how it went.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, shape shape, q request, p plan) {
	ctx := r.Context()
	slot, err := s.takeSlot(ctx)
	if err != nil {
		s.stats.aborted.Add(1)
		return
	}
	defer s.freeSlot(slot)
	p.cached = s.cache.warm(p.text)
	s.stats.processing.Add(1)
	defer s.stats.processing.Add(-1)
	s.stats.computing.Add(int64(p.prompt + p.tokens))
	defer s.stats.computing.Add(-int64(p.prompt + p.tokens))
	g := &generation{
		s: s, shape: shape, plan: p, usage: q.StreamOptions.IncludeUsage,
		id: s.name(shape.idPrefix()), begun: s.cfg.Now(),
	}
	if q.Stream {
		s.stats.running.Add(1)
		defer s.stats.running.Add(-1)
		err = g.stream(ctx, w)
	} else {
		err = g.whole(ctx, w)
	}
	s.stats.finish(g, err)
	if errors.Is(err, errCutOff) {
		panic(http.ErrAbortHandler) // closes the connection without an end
	}
}

func (s *Server) takeSlot(ctx context.Context) (int, error) {
	if s.slots == nil {
		return 0, nil
	}
	select {
	case slot := <-s.slots:
		return slot, nil
	default:
	}
	s.stats.deferred.Add(1)
	defer s.stats.deferred.Add(-1)
	select {
	case slot := <-s.slots:
		return slot, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (s *Server) freeSlot(slot int) {
	if s.slots != nil {
		s.slots <- slot
	}
}

// generation is one answer in the making.
type generation struct {
	s     *Server
	shape shape
	plan  plan
	usage bool
	id    string
	begun time.Time
	made  int       // tokens so far
	first time.Time // when the first token was due
}

// pace waits until token i is due. Times are counted from the beginning, so
// that a late wake-up does not delay all tokens after it.
func (g *generation) pace(ctx context.Context, i int) error {
	p := g.s.cfg.Params
	due := g.plan.first(p) + time.Duration(i/p.together())*p.interval()
	err := wait(ctx, due-g.s.cfg.Now().Sub(g.begun))
	if i == 0 && err == nil {
		g.first = g.s.cfg.Now()
		g.s.cache.computed(g.plan.text)
	}
	return err
}

// fault is the simulated fault before token i, if one is due.
func (g *generation) fault(i int) error {
	if g.plan.tokens < 2 || i != g.plan.tokens/2 {
		return nil
	}
	switch g.s.cfg.Params.Fail {
	case FailMidStream:
		return errCutOff
	case FailCrash:
		if g.s.crash.CompareAndSwap(false, true) {
			close(g.s.crashed)
		}
		return errCutOff
	}
	return nil
}

// stream writes one event a token. A paced stream is flushed with each event, or
// with those that come together, an unpaced one in large pieces.
func (g *generation) stream(ctx context.Context, w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	paced, together := g.s.cfg.Params.IntervalMS > 0, g.s.cfg.Params.together()
	f := http.NewResponseController(w)
	send := func(b []byte) error {
		if _, err := w.Write(b); err != nil {
			return err
		}
		return f.Flush()
	}
	b := g.shape.begin(nil, g)
	for i := range g.plan.tokens {
		if err := g.pace(ctx, i); err != nil {
			return err
		}
		if err := g.fault(i); err != nil {
			return errors.Join(err, send(b))
		}
		b = g.shape.token(b, g, i)
		g.made++
		if paced && (i+1)%together == 0 || len(b) >= flushAt {
			if err := send(b); err != nil {
				return err
			}
			b = b[:0]
		}
	}
	return send(append(g.shape.end(b, g), "data: [DONE]\n\n"...))
}

// whole answers in one piece once all tokens are made.
func (g *generation) whole(ctx context.Context, w http.ResponseWriter) error {
	for i := range g.plan.tokens {
		if err := g.pace(ctx, i); err != nil {
			return err
		}
		if err := g.fault(i); err != nil {
			return err
		}
		g.made++
	}
	reply(w, g.shape.whole(g))
	return ctx.Err()
}
