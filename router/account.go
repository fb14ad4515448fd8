package router

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"llmgw/router/limits"
	"llmgw/router/openai"
)

// Limits decides what may run; see limits.Limiter.
type Limits interface {
	Admit(context.Context, limits.Request) (*limits.Grant, error)
}

// account is what one request holds of limits and budgets, and what it used.
type account struct {
	grant   *limits.Grant // nil: there are no limits, or it was not admitted yet
	meter   openai.UsageMeter
	engine  *Replica // that had the request; nil: none
	status  int      // of its answer; 0: none
	charged bool
}

// admit asks once for the whole request, whatever replicas it takes.
func (i *inference) admit(ctx context.Context, o offers) *openai.Error {
	view := o.views[0]
	r := i.t.r
	if r.cfg.Quotas == nil || i.account.grant != nil {
		return nil
	}
	estimate, e := i.estimate(view)
	if e != nil {
		return e
	}
	grant, err := r.cfg.Quotas.Admit(ctx, limits.Request{
		Key: i.t.key, Model: view.Model.ID, Provider: view.provider(), Payees: payees(o), Stream: i.stream, Estimate: estimate,
	})
	var refusal *limits.Refusal
	switch {
	case err == nil:
		i.account.grant = grant
		grant.Header(i.t.out.Header())
		i.t.anthropicLimits()
		return nil
	case errors.As(err, &refusal):
		if !i.t.out.committed {
			refusal.Header(i.t.out.Header())
			i.t.anthropicLimits()
		}
		return overLimit(refusal)
	}
	return nil // ctx has ended
}

// payees are all who may give the answer: money is set aside for the dearest.
func payees(o offers) []limits.Payee {
	var out []limits.Payee
	for _, c := range o.replicas {
		provider, _ := c.paidTo()
		if p := (limits.Payee{Model: c.Model, Provider: provider}); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// anthropicLimits tells limits as clients of the Messages API know them: with the
// moment of a reset in place of the time until then.
func (t *request) anthropicLimits() {
	if t.route.dialect != openai.Messages {
		return
	}
	h := t.out.Header()
	for _, what := range []string{"Requests", "Tokens"} {
		for _, field := range []string{"Limit", "Remaining", "Reset"} {
			value := h.Get("X-Ratelimit-" + field + "-" + what)
			if value == "" {
				continue
			}
			if field == "Reset" {
				left, err := time.ParseDuration(value)
				if err != nil {
					continue
				}
				value = t.r.now().Add(left).UTC().Format(time.RFC3339)
			}
			h.Set("Anthropic-Ratelimit-"+what+"-"+field, value)
		}
	}
}

// charge ends what the request holds with what it used. What no engine answered
// is not charged, nor what an engine failed at before it gave anything.
func (i *inference) charge() {
	a := &i.account
	if a.charged {
		return
	}
	a.charged = true
	used, told := a.meter.Usage()
	if told {
		i.t.r.queue.charge(i.t.key.ID, used)
		i.suspectCut(used)
	}
	if a.grant == nil {
		return
	}
	if a.engine == nil || a.status >= http.StatusInternalServerError && !told {
		a.grant.Release()
		return
	}
	switch {
	case a.status >= http.StatusBadRequest:
		used = openai.Usage{Source: openai.UsageEngine}
	case !told:
		used = openai.Usage{Input: i.prompt(), Source: openai.UsageEstimated}
	case used.Source == openai.UsageCounted && used.Input == 0:
		used.Input = i.prompt()
	}
	code := i.t.code
	if code == 0 {
		code = i.t.out.status
	}
	provider, node := a.engine.paidTo()
	a.grant.Settle(limits.Outcome{Usage: used, Status: code, Node: node, Model: a.engine.Model, Provider: provider})
}

// suspectCut flags a prompt of which the engine read so little that it seems to
// have cut it without a word.
func (i *inference) suspectCut(used openai.Usage) {
	if used.Source != openai.UsageEngine || !openai.Truncated(used.Input, i.own.req.TextBytes) {
		return
	}
	r := i.t.r
	r.metrics.truncated.WithLabelValues(i.t.model).Inc()
	if r.quiet.allow(r.now()) {
		r.cfg.Log.Warn("an engine seems to have cut a prompt without a word", slog.String("model", i.t.model), slog.String("node", i.t.server),
			slog.Uint64("prompt_tokens", used.Input), slog.Int("prompt_bytes", i.own.req.TextBytes), slog.String("request_id", i.t.id))
	}
}

// overLimit tells a limit of a minute from a budget that is spent.
func overLimit(r *limits.Refusal) *openai.Error {
	e := &openai.Error{
		Status: http.StatusTooManyRequests, Type: openai.TypeRateLimit, Code: "rate_limit_exceeded",
		Message: r.Error(), RetryAfter: r.RetryAfter, Hint: "llmgw usage",
	}
	switch {
	case r.Quota:
		e.Type, e.Code, e.NoRetry = "insufficient_quota", "insufficient_quota", true
	case r.Metric == limits.MetricMissing:
		e.Status, e.Type, e.Code = http.StatusForbidden, openai.TypePermission, r.Level+"_not_found"
		e.Hint, e.RetryAfter = "llmgw keys ls", 0
	}
	return e
}
