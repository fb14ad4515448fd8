package router

import (
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"llmgw/router/keys"
	"llmgw/router/openai"
)

// statusClientGone is noted for a client that left; it is never sent.
const statusClientGone = 499

// discardTime is how long a refused client may go on sending.
const discardTime = 2 * time.Second

// request is a client's request on its way through the entry node.
type request struct {
	r             *Router
	req           *http.Request
	out           *answer
	began         time.Time
	id            string // shown; a client's own if it is harmless
	route         route
	key           keys.Info
	model, server string // that answers, and its node; empty: none was asked
	body          []byte
	whole         bool  // the body was read to its end
	held          int64 // bytes taken from the budget
	code          int   // noted in place of the status sent; 0: none
}

func (r *Router) begin(w http.ResponseWriter, req *http.Request) *request {
	r.metrics.inFlight.Inc()
	t := &request{r: r, req: req, began: r.now(), route: route{name: "other"}}
	t.id = requestID(req.Header.Get("X-Request-Id"), r.cfg.Entropy)
	t.out = newAnswer(w, r.cfg.Limits, t.began)
	w.Header().Set("X-Request-Id", t.id)
	return t
}

// end gives back what the request holds and counts it.
func (t *request) end() {
	t.r.bodies.give(t.held)
	t.out.close()
	code := t.code
	if code == 0 {
		code = t.out.status
	}
	took := t.r.now().Sub(t.began)
	t.r.metrics.ended(t, code, took)
	t.r.cfg.Log.Debug("request answered", slog.String("route", t.route.name), slog.Int("code", code),
		slog.String("request_id", t.id), slog.String("key", t.key.ID), slog.Duration("took", took))
}

// fail ends the request with e: as an answer of its own, or, when the client
// was sent the head of a stream already, as the end of that stream.
func (t *request) fail(e *openai.Error) {
	if t.out.committed {
		t.code = e.Status
		_ = t.out.Write(t.route.dialect.StreamError(e, t.origin(), nil))
		return
	}
	if !t.whole {
		// The server throws away what still comes of the body, so that the
		// client sees the answer; but not for ever.
		_ = t.out.rc.SetReadDeadline(time.Now().Add(discardTime))
	}
	t.out.status, t.out.committed = t.route.dialect.Status(e), true
	t.route.dialect.WriteError(t.out.w, e, t.origin())
}

// gone notes that the client left.
func (t *request) gone() { t.code = statusClientGone }

// word answers with one word.
func (t *request) word(status int, word string) {
	t.out.Header().Set("Content-Type", "text/plain; charset=utf-8")
	t.out.Header().Set("Cache-Control", "no-store")
	t.out.WriteHeader(status)
	// A probe that left needs no answer.
	_, _ = io.WriteString(t.out.w, word+"\n")
}

// maxRequestID bounds an ID that is taken over from a client.
const maxRequestID = 128

// requestID takes over a client's ID if it can harm no log and no header.
func requestID(client string, entropy io.Reader) string {
	if client != "" && len(client) <= maxRequestID && !strings.ContainsFunc(client, oddInID) {
		return client
	}
	var raw [12]byte
	// The ID is a label: without entropy it is poor, not wrong.
	_, _ = io.ReadFull(entropy, raw[:])
	return "req-" + hex.EncodeToString(raw[:])
}

func oddInID(c rune) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		return false
	}
	return true
}

// authenticate finds the client's key and checks its scope.
func (t *request) authenticate(scope string) *openai.Error {
	if scope == "" || scope == keys.ScopeMetrics && t.r.cfg.PublicMetrics {
		return nil
	}
	token := credential(t.req.Header)
	if token == "" {
		return noKey()
	}
	var trusted []netip.Prefix
	if t.r.cfg.Trusted != nil {
		trusted = t.r.cfg.Trusted()
	}
	info, err := t.r.cfg.Auth.CheckFrom(token, keys.ClientAddress(t.req, trusted))
	if err != nil {
		return badKey(err)
	}
	t.key = info
	if e := t.ownOrigin(); e != nil {
		return e
	}
	if !info.Allows(scope) {
		return noScope(scope)
	}
	return nil
}

// credential finds the key in the places where clients put it.
func credential(h http.Header) string {
	if scheme, token, ok := strings.Cut(h.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	for _, name := range []string{"X-Api-Key", "Api-Key"} {
		if token := h.Get(name); token != "" {
			return strings.TrimSpace(token)
		}
	}
	return ""
}
