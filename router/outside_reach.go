package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/router/openai"
	"llmgw/router/relay"
)

const (
	// maxKeyTries bounds the keys of a provider that one attempt goes through.
	maxKeyTries = 3
	// outsideError bounds an error of a provider, in bytes.
	outsideError = 64 << 10
)

// reachOutside sends a call to a provider. Keys that it does not take, or takes no
// more requests of, are left alone for a while, and the next one is tried. What
// comes back is an answer for the client: success, or an error in its own request.
// The returned function frees the way.
func (r *Router) reachOutside(ctx context.Context, c Replica, call *relay.Call, wait relay.Wait) (*relay.Exchange, func(), error) {
	p, o := c.Provider, r.outside
	via := r.via()
	if via != "" && slices.ContainsFunc(call.Header["Via"], func(v string) bool { return strings.Contains(v, via) }) {
		return nil, nil, &providerError{provider: p.ID, kind: providerLoop}
	}
	leave, ok := o.enter(p)
	if !ok {
		return nil, nil, &providerError{provider: p.ID, kind: providerFull, wait: time.Second}
	}
	var last error = &providerError{provider: p.ID, kind: providerFull, wait: time.Second}
	keys := o.ready(p, r.now())
	for _, key := range keys[:min(len(keys), maxKeyTries)] {
		x, err := o.conns.Start(ctx, p, key.Secret, via, call, wait)
		if err != nil {
			leave()
			return nil, nil, unreached(ctx, p, err)
		}
		failed, next := r.judgeOutside(x, c, key, call)
		if failed == nil {
			return x, func() { x.Close(); leave() }, nil
		}
		x.Close()
		if last = failed; !next {
			break
		}
	}
	leave()
	return nil, nil, last
}

func (r *Router) via() string {
	if r.cfg.Via == nil {
		return ""
	}
	return r.cfg.Via()
}

// unreached tells errors of the way to a provider from the request's own end.
func unreached(ctx context.Context, p *catalog.Provider, err error) error {
	var broken *relay.BrokenError
	if ctx.Err() != nil || !errors.As(err, &broken) {
		return err
	}
	return &providerError{provider: p.ID, kind: providerUnreached, err: err}
}

// judgeOutside says whether an answer is one for the client; nil: it is. next: it
// is the key's fault, and another may do.
func (r *Router) judgeOutside(x *relay.Exchange, c Replica, key catalog.ProviderKey, call *relay.Call) (failed error, next bool) {
	p, now := c.Provider, r.now()
	asked := retryAfter(x.Header, now)
	keepAllowed(x.Header)
	if x.Status < 300 {
		r.outside.works(p, key.ID, now)
		return nil, false
	}
	e := &providerError{provider: p.ID, kind: kindOf(x.Status), status: x.Status}
	if x.Status < 400 {
		return e, false
	}
	body, err := x.Hold(outsideError)
	if err != nil {
		e.kind, e.err = providerFailed, err
		return e, x.Status == http.StatusTooManyRequests
	}
	body = scrub(body, p)
	e.api, _ = openai.ReadError(x.Status, body)
	switch {
	case x.Status == http.StatusUnauthorized, x.Status == http.StatusPaymentRequired:
		asked = max(asked, refusedFor)
	case x.Status == http.StatusForbidden:
		return e, true // it may be about this request alone
	case x.Status == http.StatusTooManyRequests:
		if e.api != nil && (e.api.Code == "insufficient_quota" || e.api.Type == "insufficient_quota") {
			asked = max(asked, refusedFor)
		}
	case x.Status >= 500 && asked > 0:
	case x.Status >= 500, x.Status == http.StatusNotFound, x.Status == http.StatusRequestTimeout:
		return e, false
	default:
		x.Replace(body)
		return nil, false
	}
	r.cool(p, key.ID, x.Status, asked)
	e.wait = r.outside.left(p, key.ID, now)
	r.complainOutside(p, key, x.Status, call.Header.Get("X-Request-Id"))
	return e, true
}

// left is how long a key is left alone from now.
func (o *outside) left(p *catalog.Provider, key string, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cooling[keyName{p.ID, key}].until.Sub(now)
}

// keepAllowed leaves of a provider's headers what describes the answer's body. The
// rest is about the provider's account, or about the connection.
func keepAllowed(h http.Header) {
	for name := range h {
		switch name {
		case "Content-Type", "Content-Encoding", "Content-Language":
		default:
			delete(h, name)
		}
	}
}

// scrub takes a provider's keys out of what it says: some repeat them.
func scrub(body []byte, p *catalog.Provider) []byte {
	for _, k := range p.Keys {
		if text := k.Secret.Reveal(); text != "" {
			body = bytes.ReplaceAll(body, []byte(text), []byte("***"))
		}
	}
	return body
}

// retryAfter reads how long a provider wants to be left alone; 0: it does not say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return bounded(ms / 1000)
	}
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 0 {
		return bounded(seconds)
	}
	if at, err := http.ParseTime(text); err == nil && at.After(now) {
		return bounded(at.Sub(now).Seconds())
	}
	return 0
}

func bounded(seconds float64) time.Duration {
	return time.Duration(min(seconds, mostCool.Seconds()) * float64(time.Second))
}

// providerKind sorts what providers fail with.
type providerKind int

const (
	providerFailed    providerKind = iota
	providerUnreached              // no connection, no answer, or no identity
	providerRefused                // it does not take the mesh's key
	providerLimited                // it takes no more requests of the key for now
	providerFull                   // it has as many requests of this node as it may
	providerUnknown                // it has no such model
	providerMoved                  // it redirects
	providerLoop                   // the request goes in a circle
)

func kindOf(status int) providerKind {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusPaymentRequired, status == http.StatusForbidden:
		return providerRefused
	case status == http.StatusTooManyRequests:
		return providerLimited
	case status == http.StatusNotFound:
		return providerUnknown
	case status >= 300 && status < 400:
		return providerMoved
	case status == http.StatusLoopDetected:
		return providerLoop
	}
	return providerFailed
}

func statusLabel(status int) string { return strconv.Itoa(status) }

// providerError is a provider that gave no answer for the client.
type providerError struct {
	provider string
	kind     providerKind
	status   int           // of its answer; 0: none
	api      *openai.Error // what it said, keys taken out; nil: nothing that can be read
	wait     time.Duration // until it may be asked again; 0: not known
	err      error
}

func (e *providerError) Error() string {
	text := fmt.Sprintf("provider %s", e.provider)
	if e.status != 0 {
		text += fmt.Sprintf(": status %d", e.status)
	}
	if e.api != nil && e.kind != providerRefused {
		text += ": " + clip(e.api.Message)
	}
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

func (e *providerError) Unwrap() error { return e.err }

// keyFault says that a provider did not fail, but a key of it or the request: its
// breaker stays as it is.
func keyFault(err error) bool {
	var e *providerError
	return errors.As(err, &e) && (e.wait > 0 || e.kind != providerFailed && e.kind != providerUnreached && e.kind != providerMoved)
}

// shown is what the client is told. What a provider says to a key is the mesh's
// business, and no word on the client's own key.
func (e *providerError) shown(view ModelView) *openai.Error {
	out := &openai.Error{
		Status: http.StatusBadGateway, Type: openai.TypeServer, Code: "provider_failed",
		Hint: "llmgw providers test " + e.provider, RetryAfter: e.wait,
	}
	say := func(format string, args ...any) {
		out.Message = fmt.Sprintf("the provider %q ", e.provider) + fmt.Sprintf(format, args...)
	}
	switch e.kind {
	case providerRefused:
		out.Code, out.RetryAfter = "provider_refused", 0
		say("does not let this mesh use %q (status %d)", clip(view.Model.Name), e.status)
	case providerLimited, providerFull:
		out.Status, out.Type, out.Code = http.StatusTooManyRequests, openai.TypeRateLimit, "rate_limit_exceeded"
		out.RetryAfter = max(e.wait, time.Second)
		say("takes no more requests now: try again in %d s", int64((out.RetryAfter+time.Second-1)/time.Second))
	case providerUnknown:
		out.Status, out.Type, out.Code, out.Param = http.StatusNotFound, openai.TypeInvalidRequest, "model_not_found", "model"
		say("has no model %q", clip(view.Model.Name))
	case providerMoved:
		say("answers with a redirect, which is not followed")
	case providerLoop:
		out.Status, out.Type, out.Code = http.StatusLoopDetected, openai.TypeInvalidRequest, "loop_detected"
		out.NoRetry = true
		say("is not of use: the request would go in a circle")
	case providerUnreached:
		e.unreached(out, say)
	default:
		out.RetryAfter = max(e.wait, time.Second)
		switch {
		case e.api != nil:
			say("failed with status %d: %s", e.status, clip(e.api.Message))
		case e.status != 0:
			say("failed with status %d", e.status)
		default:
			say("failed")
		}
	}
	return out
}

// unreached tells no addresses: they are the mesh's business.
func (e *providerError) unreached(out *openai.Error, say func(string, ...any)) {
	var address *relay.AddressError
	out.Code = "provider_unreachable"
	switch {
	case errors.As(e.err, &address):
		say("is at an address that is not allowed for it")
	case relay.IsCertificate(e.err):
		say("shows a certificate that is not trusted")
	case relay.IsTimeout(e.err):
		out.Status = http.StatusGatewayTimeout
		say("does not answer in time")
	default:
		say("cannot be reached, or broke the connection")
	}
}

// outsideFailed is what the last failure says, if it was a provider's.
func outsideFailed(view ModelView, last error) *openai.Error {
	var e *providerError
	if !errors.As(last, &e) {
		return nil
	}
	return e.shown(view)
}

// providerBroke is how an answer of a provider ends that is not whole.
func providerBroke(p *catalog.Provider) *openai.Error {
	return &openai.Error{
		Status: http.StatusBadGateway, Type: openai.TypeServer, Code: "provider_failed",
		Message: fmt.Sprintf("the provider %q failed before the answer was whole", p.ID), Hint: "llmgw providers test " + p.ID,
	}
}
