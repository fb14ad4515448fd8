package limits

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"llmgw/mesh/catalog"
)

// Levels at which limits and budgets stand.
const (
	LevelKey     = "key"
	LevelProject = "project"
	LevelTenant  = "tenant"
)

// MetricMissing is the metric of a refusal for a project or tenant that does not
// exist, or is not known here yet.
const MetricMissing = "missing"

// Refusal says which limit a request does not pass.
type Refusal struct {
	Level  string // key, project, tenant
	Name   string // of the key, project or tenant
	Metric string // a catalog.Metric; of a budget its period and unit, as "day/micros"
	Limit  uint64
	Used   uint64 // what is held included
	// RetryAfter is when it would pass if nothing more was used, at least a second; 0:
	// by no waiting.
	RetryAfter time.Duration
	// Quota: a budget is spent. Else it is a limit of a minute or of requests at once.
	Quota bool
}

// Error names the level and, for clients that read it, when to try again.
func (r *Refusal) Error() string {
	what := fmt.Sprintf("%s %q", r.Level, r.Name)
	if r.Metric == MetricMissing {
		return fmt.Sprintf("this API key counts for %s, which does not exist", what)
	}
	if r.Quota {
		text := fmt.Sprintf("the %s budget of %s is spent: %d of %d", r.Metric, what, r.Used, r.Limit)
		if r.RetryAfter > 0 {
			text += ", until the next one begins in " + r.RetryAfter.String()
		}
		return text
	}
	if r.Limit == 0 {
		return fmt.Sprintf("%s may use no %s: the limit is 0", what, words[catalog.Metric(r.Metric)])
	}
	return fmt.Sprintf("the limit of %d %s for %s is reached (%d used); try again in %ds",
		r.Limit, words[catalog.Metric(r.Metric)], what, r.Used, seconds(r.RetryAfter))
}

var words = map[catalog.Metric]string{
	catalog.MetricRequests: "requests a minute", catalog.MetricInputTokens: "input tokens a minute",
	catalog.MetricOutputTokens: "output tokens a minute", catalog.MetricTokens: "tokens a minute",
	catalog.MetricParallel: "requests at once",
}

// Header writes what clients obey.
func (r *Refusal) Header(h http.Header) {
	if r.Quota {
		h.Set("X-Should-Retry", "false")
		return
	}
	if r.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(seconds(r.RetryAfter)))
	}
	shown{metric: catalog.Metric(r.Metric), limit: r.Limit, remaining: 0, reset: r.RetryAfter, set: true}.header(h)
}

// shown is a limit as response headers tell of it.
type shown struct {
	metric           catalog.Metric
	limit, remaining uint64
	reset            time.Duration
	set              bool
}

// header writes x-ratelimit-*; a limit of requests at once has none.
func (s shown) header(h http.Header) {
	what := "Tokens"
	switch {
	case !s.set || s.metric == catalog.MetricParallel || s.metric == MetricMissing:
		return
	case s.metric == catalog.MetricRequests:
		what = "Requests"
	}
	h.Set("X-Ratelimit-Limit-"+what, strconv.FormatUint(s.limit, 10))
	h.Set("X-Ratelimit-Remaining-"+what, strconv.FormatUint(s.remaining, 10))
	h.Set("X-Ratelimit-Reset-"+what, upToSeconds(s.reset).String())
}

// seconds rounds up to whole seconds, one at least.
func seconds(d time.Duration) int { return max(int((d+time.Second-1)/time.Second), 1) }
