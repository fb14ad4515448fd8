package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"llmgw/mesh/catalog"
)

// Models of the chaos: duo answers at once, slow streams long enough to be hit,
// flex gets another number of replicas all the time.
const (
	modelDuo  = "duo"
	modelSlow = "slow"
	modelFlex = "flex"
)

var chaosModels = []string{modelDuo, modelSlow, modelFlex}

// requestWait is where a client gives up: far above what a request takes, and
// above the 10 s after which a box is given up.
const requestWait = 20 * time.Second

// asked is one request and what became of it.
type asked struct {
	entry, model string
	stream       bool
	from, to     time.Time
	first        bool   // a byte of the answer was here
	ok           bool   // whole, as asked for
	told         bool   // an unfinished stream ended with an error frame and [DONE]
	reason       string // of a failure: status and code, or what the transport said
	detail       string
}

func (a asked) String() string {
	return fmt.Sprintf("%s asked for %s at %s for %v, stream %v: %s: %s", a.entry, a.model, a.from.Format("15:04:05.000"),
		a.to.Sub(a.from).Round(time.Millisecond), a.stream, a.reason, a.detail)
}

// clientCount clients ask at the same time, each with a pause between two
// requests.
const (
	clientCount = 10
	clientPause = 120 * time.Millisecond
)

// ask keeps clients busy until ctx ends and returns all requests.
func (c *chaos) ask(ctx context.Context, seed uint64, key string) []asked {
	var mu sync.Mutex
	var all []asked
	var wg sync.WaitGroup
	for n := range clientCount {
		r := rand.New(rand.NewPCG(seed, 100+uint64(n)))
		wg.Go(func() {
			for ctx.Err() == nil {
				a := c.askOne(r, key)
				mu.Lock()
				all = append(all, a)
				mu.Unlock()
				time.Sleep(rand64(r, 2*clientPause))
			}
		})
	}
	wg.Wait()
	return all
}

func (c *chaos) askOne(r *rand.Rand, key string) asked {
	entry := c.boxes[r.IntN(len(c.boxes))]
	a := asked{entry: entry.Name, model: chaosModels[r.IntN(len(chaosModels))], stream: r.IntN(2) == 0, from: time.Now()}
	api := &API{HTTP: c.clients, Base: entry.URL(), Key: key}
	ctx, cancel := context.WithTimeout(context.Background(), requestWait)
	defer cancel()
	if a.stream {
		a.streamed(ctx, api)
	} else {
		a.whole(ctx, api)
	}
	a.to = time.Now()
	return a
}

func (a *asked) whole(ctx context.Context, api *API) {
	got, err := api.Ask(ctx, "POST", "/v1/chat/completions", Chat(a.model, "Hi", false, nil))
	switch {
	case err != nil:
		a.reason, a.detail = transportReason(err), err.Error()
	case got.Status != 200:
		a.reason, a.detail = fmt.Sprintf("%d %s", got.Status, got.Failure().Error.Code), got.String()
	default:
		a.ok = true
	}
}

func (a *asked) streamed(ctx context.Context, api *API) {
	resp, err := api.Do(ctx, "POST", "/v1/chat/completions", Chat(a.model, "Hi", true, nil))
	if err != nil {
		a.reason, a.detail = transportReason(err), err.Error()
		return
	}
	if resp.StatusCode != 200 {
		answer, _ := readAnswer(resp)
		a.reason, a.detail = fmt.Sprintf("%d %s", resp.StatusCode, answer.Failure().Error.Code), answer.String()
		return
	}
	st := newStream(resp)
	defer st.Close()
	tale, err := st.Rest()
	a.first = tale.Chunks > 0
	switch {
	case err != nil:
		a.reason, a.detail = "stream: "+transportReason(err), err.Error()
	case len(tale.Failure) > 0:
		a.told = tale.Done
		a.reason, a.detail = "stream: "+tale.Failure[0].Error.Code, tale.Failure[0].Error.Message
	case !tale.Done:
		a.reason = "stream: ended without [DONE]"
	default:
		a.ok = true
	}
}

func transportReason(err error) string {
	var op *net.OpError
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timed out"
	case errors.As(err, &op):
		return op.Op + " failed"
	}
	return "connection closed"
}

// watchReplicas notes what each box says of its own replicas until ctx ends.
func (c *chaos) watchReplicas(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range c.boxes {
		wg.Go(func() {
			for ctx.Err() == nil {
				c.look(ctx, i)
				time.Sleep(lookEach)
			}
		})
	}
	wg.Wait()
}

// lookEach is far below how long a fault lasts.
const lookEach = 250 * time.Millisecond

func (c *chaos) look(ctx context.Context, i int) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	at := time.Now()
	all, err := c.admins[i].Overview(ctx)
	if err != nil {
		return // what was done to the box stands in the timeline
	}
	ready := map[string]bool{}
	for _, r := range all.Replicas {
		if r.Node == all.Status.Node.ID && r.State == string(catalog.ReplicaReady) {
			ready[r.Model] = true
		}
	}
	for _, model := range chaosModels {
		c.line.holds(model, c.names[i], ready[model], at)
	}
}
