package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"llmgw/ui"
)

// mostWaiting bounds the requests of one offer that wait for one head: a machine that
// cannot keep up is offered less instead of being buried.
const mostWaiting = 48

// limitMesh is boxes that all serve one simulated model, and a laptop that asks them.
type limitMesh struct {
	*Lab
	boxes  []*Box
	admins []*ui.Client
	client *http.Client // of the laptop
}

// limitModel is cheap: all its tokens at once.
const limitModel = "sim"

// newLimitMesh joins boxes of which each serves the model itself, so that a mesh which
// is cut serves on both sides.
func newLimitMesh(t *testing.T, size int, sim Sim) *limitMesh {
	t.Helper()
	m := &limitMesh{Lab: New(t)}
	var names []string
	for i := range size {
		names = append(names, fmt.Sprintf("h%d", i+1))
	}
	m.boxes = m.startBoxes(names...)
	m.client = m.Box("laptop").Client()
	for i, b := range m.boxes {
		m.admins = append(m.admins, b.Admin())
		if i > 0 {
			b.CLI("join", m.boxes[0].CLI("token", "new"))
		}
	}
	for i, a := range m.admins {
		Eventually(t, 60*time.Second, m.boxes[i].Name+" sees all as live", func() (bool, string) {
			s, err := a.Status(t.Context())
			return err == nil && s.Mesh.Live == size, fmt.Sprint(s.Mesh, err)
		})
		m.boxes[i].PullSim(limitModel, sim)
	}
	Eventually(t, 60*time.Second, "the mesh knows that all have the weights", func() (bool, string) {
		list, err := m.admins[0].Models(t.Context())
		return err == nil && len(list.Models) == 1 && len(list.Models[0].OnDisk) == size, fmt.Sprint(list.Models, err)
	})
	if _, err := m.admins[0].SetModel(t.Context(), ui.ModelRequest{Model: limitModel, Replicas: &size}); err != nil {
		t.Fatal(err)
	}
	for i, a := range m.admins {
		Eventually(t, 90*time.Second, m.boxes[i].Name+" knows a replica on each box", func() (bool, string) {
			list, err := a.Replicas(t.Context())
			ready := slices.DeleteFunc(slices.Clone(list.Replicas), func(r ui.Replica) bool { return r.State != "ready" })
			return err == nil && len(ready) == size, fmt.Sprint(len(ready), err)
		})
	}
	return m
}

// newKey makes a key that all boxes know when it returns.
func (m *limitMesh) newKey(t *testing.T, r ui.KeyRequest) string {
	t.Helper()
	made, err := m.admins[0].NewKey(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range m.boxes {
		Eventually(t, startTimeout, b.Name+" knows the key "+r.Name, func() (bool, string) {
			got, err := m.at(b, made.Key).Ask(t.Context(), http.MethodGet, "/v1/models", nil)
			return err == nil && got.Status == http.StatusOK, fmt.Sprint(got, err)
		})
	}
	return made.Key
}

func (m *limitMesh) at(b *Box, key string) *API { return &API{HTTP: m.client, Base: b.URL(), Key: key} }

// offered is one request and what became of it.
type offered struct {
	head           int
	sent, answered time.Time
	status         int // 0: no answer
	quota          bool
	input, output  uint64
	text           string // of what is neither an answer nor a refusal
}

func (o offered) admitted() bool { return o.status == http.StatusOK }

// offer is a client that asks all boxes with one key.
type offer struct {
	name   string
	key    string
	tokens int // that each answer has

	mu      sync.Mutex
	all     []offered
	skipped int // not sent: too many waited
}

// run offers perMinute requests, evenly over all boxes, until ctx ends, and waits for
// those that are on their way.
func (o *offer) run(ctx context.Context, m *limitMesh, perMinute int) {
	gap := time.Minute * time.Duration(len(m.boxes)) / time.Duration(perMinute)
	var heads sync.WaitGroup
	for i, b := range m.boxes {
		heads.Go(func() { o.ask(ctx, i, m.at(b, o.key), gap, gap*time.Duration(i)/time.Duration(len(m.boxes))) })
	}
	heads.Wait()
}

func (o *offer) ask(ctx context.Context, head int, at *API, gap, first time.Duration) {
	var asked sync.WaitGroup
	defer asked.Wait()
	waiting := make(chan struct{}, mostWaiting)
	for next := time.Now().Add(first); ; next = next.Add(gap) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		}
		select {
		case waiting <- struct{}{}:
			asked.Go(func() { o.one(head, at); <-waiting })
		default:
			o.mu.Lock()
			o.skipped++
			o.mu.Unlock()
		}
	}
}

func (o *offer) one(head int, at *API) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r := offered{head: head, sent: time.Now()}
	got, err := at.Ask(ctx, http.MethodPost, "/v1/chat/completions", Chat(limitModel, "Hi", false, map[string]any{"max_tokens": o.tokens}))
	r.answered, r.status = time.Now(), got.Status
	switch {
	case err != nil:
		r.text = err.Error()
	case got.Status == http.StatusOK:
		var body struct {
			Usage struct {
				In  uint64 `json:"prompt_tokens"`
				Out uint64 `json:"completion_tokens"`
			} `json:"usage"`
		}
		if err := json.Unmarshal([]byte(got.Body), &body); err != nil {
			r.text = err.Error()
		}
		r.input, r.output = body.Usage.In, body.Usage.Out
	case got.Status == http.StatusTooManyRequests:
		r.quota = got.Failure().Error.Code == "insufficient_quota"
	default:
		r.text = got.String()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, r)
}

// known lists what came of the requests so far.
func (o *offer) known() []offered {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.all)
}

// window is what was admitted in a time.
type window struct {
	offered int
	amount  uint64 // requests, or tokens
	edge    uint64 // of amount: of requests that were on their way at an end of it
}

// within sums up the requests that were sent in a time. amount gives what one counts.
func within(all []offered, from time.Time, length time.Duration, amount func(offered) uint64) (w window) {
	to := from.Add(length)
	for _, r := range all {
		if r.sent.Before(to) && !r.sent.Before(from) {
			w.offered++
		}
		if !r.admitted() {
			continue
		}
		if !r.sent.Before(from) && r.sent.Before(to) {
			w.amount += amount(r)
			if r.answered.After(to) {
				w.edge += amount(r)
			}
		} else if r.sent.Before(from) && r.answered.After(from) {
			w.edge += amount(r)
		}
	}
	return w
}

func oneRequest(offered) uint64 { return 1 }

func itsTokens(r offered) uint64 { return r.input + r.output }
