package ui

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// progressGap is the least time between two steps of one phase on the wire; a
// person cannot read faster.
const progressGap = 100 * time.Millisecond

// stream writes a long operation's steps as NDJSON. It is not begun before the
// first step, so that what fails at once keeps a proper HTTP status.
type stream struct {
	w   http.ResponseWriter
	now func() time.Time

	mu    sync.Mutex
	begun bool
	last  Progress
	at    time.Time
}

// step may be called from any goroutine. Bytes that run backwards within a
// phase are held at the highest seen.
func (s *stream) step(p Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.begun && p.Phase == s.last.Phase {
		p.Done = max(p.Done, s.last.Done)
		if p == s.last || (now.Sub(s.at) < progressGap && p.Done != p.Total) {
			return
		}
	}
	s.last, s.at = p, now
	s.write(map[string]any{"phase": p.Phase, "done": p.Done, "total": known(p.Total)})
}

func (s *stream) write(line any) {
	rc := http.NewResponseController(s.w)
	if !s.begun {
		s.begun = true
		// The operation may take longer than the server lets an answer take.
		// Servers without deadlines or flushing are served all the same.
		_ = rc.SetWriteDeadline(time.Time{})
		s.w.Header().Set("Content-Type", "application/x-ndjson")
		s.w.WriteHeader(http.StatusOK)
	}
	// A client that left ends the request's context; that stops the operation.
	_ = json.NewEncoder(s.w).Encode(line)
	_ = rc.Flush()
}

// finish writes the last line, or returns the error when nothing was written.
func (s *stream) finish(result any, err error, toBody func(error) errorBody) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.write(map[string]any{"result": result})
	case s.begun:
		s.write(toBody(err))
	default:
		return err
	}
	return nil
}

// followed makes a handler of a long operation that tells of its progress; wrap
// makes its result the stream's last line.
func followed[In, T, Out any, P answerOf[Out]](u *UI, call func(context.Context, In, func(Progress)) (T, error), wrap func(T) Out) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var in In
		if err := readJSON(w, r, &in, maxRequest); err != nil {
			return err
		}
		s := &stream{w: w, now: u.cfg.Now}
		result, err := call(r.Context(), in, s.step)
		out := wrap(result)
		P(&out).stamp()
		return s.finish(out, err, u.streamError(w, r))
	}
}

// streamError words an error for the end of a stream, where no status can be
// sent any more.
func (u *UI) streamError(w http.ResponseWriter, r *http.Request) func(error) errorBody {
	return func(err error) errorBody {
		api := toAPIError(err, u.cfg.Node, w.Header().Get("X-Request-Id"))
		if api.Status >= http.StatusInternalServerError {
			u.cfg.Log.Error("admin request failed", "method", r.Method, "path", r.URL.Path,
				"request_id", api.RequestID, "error", err)
		}
		return api.body()
	}
}

// known is nil for the zero that stands for "not known".
func known[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
