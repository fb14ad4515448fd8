package router

import (
	"net/http"
	"strconv"
	"time"

	"llmgw/router/openai"
	"llmgw/router/relay"
)

// openAIVersion is what clients of the API look for beside the answer.
const openAIVersion = "2020-10-01"

// answer writes to the client. It is the relay's sink.
type answer struct {
	w         http.ResponseWriter
	rc        *http.ResponseController
	limits    relay.Limits
	began     time.Time
	armed     time.Time // the write deadline that holds
	status    int       // sent; 0: none yet
	committed bool      // the head is out
}

func newAnswer(w http.ResponseWriter, limits relay.Limits, began time.Time) *answer {
	return &answer{w: w, rc: http.NewResponseController(w), limits: limits, began: began}
}

// Header and WriteHeader let handlers of the standard library write to it.
func (a *answer) Header() http.Header { return a.w.Header() }

func (a *answer) WriteHeader(status int) {
	if a.committed {
		return
	}
	a.status, a.committed = status, true
	a.w.WriteHeader(status)
}

// Begin sends the head of an engine's answer.
func (a *answer) Begin(status int, header http.Header, length int64) error {
	h := a.w.Header()
	for name, values := range header {
		if name != "X-Request-Id" { // ours, or the client's own
			h[name] = values
		}
	}
	if length >= 0 {
		h.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	a.stamp(h)
	a.WriteHeader(status)
	return nil
}

func (a *answer) stamp(h http.Header) {
	h.Set("Openai-Version", openAIVersion)
	h.Set("Openai-Processing-Ms", strconv.FormatInt(time.Since(a.began).Milliseconds(), 10))
}

// Write hands bytes to the client before it returns.
func (a *answer) Write(p []byte) error {
	if now := time.Now(); a.armed.Sub(now) < a.limits.Write/2 {
		a.armed = now.Add(a.limits.Write)
		// A connection that takes no deadline shows its fault in Write.
		_ = a.rc.SetWriteDeadline(a.armed)
	}
	if _, err := a.w.Write(p); err != nil {
		return err
	}
	return a.rc.Flush()
}

// comment tells a waiting client, and the proxies before it, that its stream
// lives and what it waits for. It fixes the status at 200.
func (a *answer) comment(d openai.Dialect, text string) error {
	said := d.Comment(text)
	if said == "" {
		return nil
	}
	if !a.committed {
		h := a.w.Header()
		h.Set("Content-Type", d.ContentType())
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		a.stamp(h)
		a.WriteHeader(http.StatusOK)
	}
	return a.Write([]byte(said))
}

// blank is comment for an answer of one JSON value: white space before it is
// none of its meaning.
func (a *answer) blank() error {
	if !a.committed {
		h := a.w.Header()
		h.Set("Content-Type", "application/json")
		a.stamp(h)
		a.WriteHeader(http.StatusOK)
	}
	return a.Write([]byte(openai.JSONKeepAlive))
}

// Committed reports that the head is out.
func (a *answer) Committed() bool { return a.committed }

// close takes the deadline off: the connection may carry a further request.
func (a *answer) close() {
	if !a.armed.IsZero() {
		_ = a.rc.SetWriteDeadline(time.Time{})
	}
}
