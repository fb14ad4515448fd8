package router

import (
	"bytes"
	"container/list"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/router/affinity"
	"llmgw/router/openai"
	"llmgw/router/relay"
)

const (
	// keptBytes bounds the prompts that a node remembers, keptPrompt one of them.
	keptBytes, keptPrompt = 64 << 20, 8 << 20
	// keptFor is how long a conversation may be silent and still be handed over.
	keptFor = 10 * time.Minute
	// handedOver bounds the conversations of one replica that are.
	handedOver = 32
	// handAtOnce prompts are computed at a successor at a time: it has work of its
	// own.
	handAtOnce = 2
)

// conversation names one at a replica of this node.
type conversation struct {
	model string // ID
	slot  int
	root  uint64
}

// prompts are the last ones of the conversations that engines of this node
// answered, so that another replica can compute them before it takes the
// conversation over. They are held in memory alone.
type prompts struct {
	mu    sync.Mutex
	bytes int
	by    map[conversation]*list.Element
	lru   list.List // of *prompt, the last used in front
}

type prompt struct {
	conversation
	path, key string // key: ID of the API key
	body      []byte
	at        time.Time
}

// keep gives the prompt that one takes the place of; nil: the conversation is
// new, or too long ago.
func (p *prompts) keep(one prompt) (before *prompt) {
	if len(one.body) > keptPrompt {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil {
		p.by = make(map[conversation]*list.Element)
	}
	if e := p.by[one.conversation]; e != nil {
		before = e.Value.(*prompt)
		p.drop(e)
	}
	p.by[one.conversation] = p.lru.PushFront(&one)
	p.bytes += len(one.body)
	for last := p.lru.Back(); p.bytes > keptBytes || one.at.Sub(last.Value.(*prompt).at) > keptFor; last = p.lru.Back() {
		p.drop(last)
	}
	return before
}

func (p *prompts) drop(e *list.Element) {
	one := p.lru.Remove(e).(*prompt)
	delete(p.by, one.conversation)
	p.bytes -= len(one.body)
}

// take gives the prompts of a replica, the last used first, and forgets them.
func (p *prompts) take(model string, slot int, now time.Time) []*prompt {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*prompt
	for e := p.lru.Front(); e != nil; {
		one, next := e.Value.(*prompt), e.Next()
		if one.model == model && one.slot == slot {
			p.drop(e)
			if len(out) < handedOver && now.Sub(one.at) <= keptFor {
				out = append(out, one)
			}
		}
		e = next
	}
	return out
}

// HandOver has the other replicas of a model compute the prompts of the
// conversations that this node's replica has warm, and tells the other heads
// where they are. It ends with ctx at the latest. Call it before a replica
// drains. What it gives is how many were handed over, and of how many.
func (r *Router) HandOver(ctx context.Context, model string, slot int) (done, all int) {
	view, ok := r.cfg.Catalog.Resolve(model)
	if !ok {
		return 0, 0
	}
	others := slices.DeleteFunc(slices.Clone(view.Replicas), func(c Replica) bool { return c.Local && c.Slot == slot || c.Provider != nil })
	if len(others) == 0 {
		return 0, 0
	}
	left := r.prompts.take(view.Model.ID, slot, r.now())
	var mu sync.Mutex
	var workers sync.WaitGroup
	next := make(chan *prompt)
	for range handAtOnce {
		workers.Go(func() {
			for one := range next {
				if err := r.handOne(ctx, one, r.mayHave(one.key, view.Model, others)); err != nil {
					r.cfg.Log.Debug("a conversation was not handed over", slog.String("model", model), slog.Any("error", err))
					continue
				}
				mu.Lock()
				done++
				mu.Unlock()
			}
		})
	}
	for _, one := range left {
		select {
		case next <- one:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	r.share.flush()
	r.metrics.handed.WithLabelValues(outcomeOK).Add(float64(done))
	r.metrics.handed.WithLabelValues(outcomeBroken).Add(float64(len(left) - done))
	return done, len(left)
}

// mayHave leaves of replicas those that may answer a key: a prompt goes nowhere else
// either. None: the key is revoked.
func (r *Router) mayHave(key string, m catalog.Model, replicas []Replica) []Replica {
	info, err := r.cfg.Auth.Find(key)
	if err != nil || !info.AllowsModel(modelNames(m)...) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(replicas), func(c Replica) bool { return c.Provider != nil || !info.AllowsNode(c.Labels) })
}

// handOne has one of the others compute a prompt: an answer of one token.
func (r *Router) handOne(ctx context.Context, one *prompt, others []Replica) error {
	var p openai.Prompt
	req, err := openai.ScanPrompt(one.body, &p)
	if err != nil {
		return err
	}
	q, _ := chainOf(&p)
	q.Root, q.Session, q.Whole = one.root, affinity.SessionHash(one.root), true
	replica, ticket := r.pick(others, nil, q)
	if ticket == nil {
		return errVanished
	}
	use := r.count(ticket, replica.Model, false)
	defer use.done()
	call := &relay.Call{Path: one.path, Header: http.Header{"Content-Type": {"application/json"}}, Body: openai.Splice(&req, oneToken(&req)...)}
	x, done, err := r.reach(ctx, replica, call, relay.Hop{
		Model: replica.Model, Slot: replica.Slot, Epoch: replica.Epoch, Digest: replica.Digest, Key: one.key, Session: one.root,
	}, nil)
	if err != nil {
		return err
	}
	defer done()
	var sink discard
	answer := relay.Pump(x, &sink, relay.Options{Now: r.now, First: use.first, Failure: func(error) *openai.Error { return brokeOff(replica.Model) }})
	if answer.Err != nil {
		return answer.Err
	}
	if answer.Status != http.StatusOK {
		return errVanished
	}
	return nil
}

// oneToken makes a request that an engine answers with one token, after it has
// computed the same prompt.
func oneToken(r *openai.Request) []openai.Edit {
	edits := []openai.Edit{openai.Set("stream", []byte("false")), openai.Remove("stream_options")}
	bounds := []string{"max_completion_tokens", "max_output_tokens", "n_predict"}
	for _, name := range bounds {
		if r.Field(name) != nil {
			edits = append(edits, openai.Set(name, []byte("1")))
		}
	}
	if r.MaxOutputTokens.Set || r.MaxCompletionTokens.Set {
		return edits
	}
	return append(edits, openai.Set("max_tokens", []byte("1")))
}

// discard takes an answer that nobody reads.
type discard struct{}

func (*discard) Committed() bool                     { return false }
func (*discard) Begin(int, http.Header, int64) error { return nil }
func (*discard) Write([]byte) error                  { return nil }

// remember keeps a prompt that an engine of this node answers. One that it refuses
// is in no cache.
func (r *Router) remember(c conversation, status int, key, path string, body []byte) {
	if status == http.StatusOK && c.root != 0 && (path == "/v1/chat/completions" || path == "/v1/completions") {
		before := r.prompts.keep(prompt{c, path, key, body, r.now()})
		if before == nil {
			return
		}
		if at, yes := collapsed(before.body, body); yes && r.quiet.allow(r.now()) {
			r.cfg.Log.Warn("a conversation's warm cache is lost each turn: a byte near the beginning of its prompt changes", slog.String("model", c.model),
				slog.String("key", key), slog.Int("first_differing_byte", at), slog.Int("prompt_bytes", len(body)))
		}
	}
}

const (
	// collapseBytes is the least prompt whose warm cache is worth a word.
	collapseBytes = 8 << 10
	// witness is how many bytes that come again prove that prompts are alike,
	// and shift how far a changed line may move them.
	witness, shift = 256, 512
)

// collapsed says whether two prompts of one conversation part in their first
// tenth though they are alike behind that, and where.
func collapsed(before, now []byte) (at int, yes bool) {
	n := min(len(before), len(now))
	for at < n && before[at] == now[at] {
		at++
	}
	if n < collapseBytes || at > n/10 {
		return at, false
	}
	middle := before[n/2 : n/2+witness]
	around := now[max(n/2-shift, 0):min(n/2+witness+shift, len(now))]
	return at, bytes.Contains(around, middle)
}
