package router

import (
	"container/list"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"llmgw/mesh"
	"llmgw/router/keys"
	"llmgw/router/openai"
	"llmgw/router/openai/responses"
)

// ProtocolStored is the stream by which a head asks another for a response that
// that one stored, or has it deleted.
const ProtocolStored = "/llmgw/responses/1"

const (
	// storedBytes bounds the stored responses of a node, storedOne one of them,
	// storedFor is how long one is kept after its last use.
	storedBytes, storedOne = 64 << 20, 8 << 20
	storedFor              = time.Hour
	// storedTime bounds a question to another head.
	storedTime = 10 * time.Second
)

// responsePrefix begins the ID of a response; the peer ID of the node that stores
// it follows, so that any head finds it.
const responsePrefix = "resp_"

// stored are the responses that clients may ask for again or go on from. They
// hold prompts, so they are in memory alone, and go with the daemon.
type stored struct {
	mu    sync.Mutex
	bytes int
	by    map[string]*list.Element
	lru   list.List // of *storedResponse, the last used in front
}

// storedResponse is one; it is its key's alone.
type storedResponse struct {
	id       string
	Key      string          `json:"key"`
	Document json.RawMessage `json:"document"`
	Items    json.RawMessage `json:"items"` // input and output, to go on from
	used     time.Time
}

func (r *storedResponse) size() int { return len(r.Document) + len(r.Items) }

func (s *stored) put(one *storedResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = make(map[string]*list.Element)
	}
	if one.size() > storedOne {
		return
	}
	s.by[one.id] = s.lru.PushFront(one)
	s.bytes += one.size()
	for last := s.lru.Back(); s.bytes > storedBytes || one.used.Sub(last.Value.(*storedResponse).used) > storedFor; last = s.lru.Back() {
		s.drop(last)
	}
}

func (s *stored) drop(e *list.Element) {
	one := s.lru.Remove(e).(*storedResponse)
	delete(s.by, one.id)
	s.bytes -= one.size()
}

// get finds a response of a key; what is another key's is not there.
func (s *stored) get(id, key string, now time.Time) *storedResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.by[id]
	if e == nil {
		return nil
	}
	one := e.Value.(*storedResponse)
	switch {
	case now.Sub(one.used) > storedFor:
		s.drop(e)
		return nil
	case one.Key != key:
		return nil
	}
	one.used = now
	s.lru.MoveToFront(e)
	return one
}

func (s *stored) remove(id, key string, now time.Time) bool {
	if s.get(id, key, now) == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.by[id]; e != nil {
		s.drop(e)
	}
	return true
}

// newResponseID is one that nobody can guess and that names its owner.
func (r *Router) newResponseID() string {
	var raw [16]byte
	// Without entropy a response is poorly hidden from other keys' guesses, and
	// its key is asked for all the same.
	_, _ = io.ReadFull(r.cfg.Entropy, raw[:])
	return r.cfg.Peer + "_" + hex.EncodeToString(raw[:])
}

// ownerOf reads the peer ID of the node that keeps what an ID with this prefix names.
func ownerOf(id, prefix string) (peer string, ok bool) {
	rest, ok := strings.CutPrefix(id, prefix)
	peer, _, ours := strings.Cut(rest, "_")
	return peer, ok && ours && peer != "" && len(id) < 256
}

// storedQuestion is what one head asks another.
type storedQuestion struct {
	ID     string `json:"id"`
	Key    string `json:"key"`
	Delete bool   `json:"delete,omitempty"`
}

// findStored asks the owner of a response for it. Nil: there is none, or not for
// this key.
func (r *Router) findStored(ctx context.Context, q storedQuestion) (*storedResponse, *openai.Error) {
	owner, ok := ownerOf(q.ID, responsePrefix)
	switch {
	case !ok:
		return nil, nil
	case owner == r.cfg.Peer:
		return r.ownStored(q), nil
	}
	ctx, cancel := context.WithTimeout(ctx, storedTime)
	defer cancel()
	one, err := r.askStored(ctx, owner, q)
	if err != nil {
		r.cfg.Log.Debug("a stored response was not reached", "owner", owner, "error", err)
		return nil, storedAway()
	}
	return one, nil
}

func (r *Router) ownStored(q storedQuestion) *storedResponse {
	one := r.stored.get(q.ID, q.Key, r.now())
	if one != nil && q.Delete {
		r.stored.remove(q.ID, q.Key, r.now())
	}
	return one
}

func (r *Router) askStored(ctx context.Context, owner string, q storedQuestion) (*storedResponse, error) {
	s, err := r.askHead(ctx, owner, ProtocolStored, q)
	if err != nil {
		return nil, err
	}
	var one *storedResponse
	if err := json.NewDecoder(io.LimitReader(s, 3*storedOne)).Decode(&one); err != nil {
		_ = s.Reset()
		return nil, err
	}
	return one, s.Close()
}

// askHead puts a question to another head, which is to be answered within the context's
// time. The answer is read from the stream.
func (r *Router) askHead(ctx context.Context, peer, protocol string, question any) (mesh.Stream, error) {
	s, err := r.cfg.Mesh.Open(ctx, peer, protocol)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = s.SetDeadline(deadline) // a stream that takes none fails in Read
	}
	if err = json.NewEncoder(s).Encode(question); err == nil {
		err = s.CloseWrite()
	}
	if err != nil {
		_ = s.Reset()
		return nil, err
	}
	return s, nil
}

// ServeStored answers one stream of ProtocolStored; s is closed or reset.
func (r *Router) ServeStored(s mesh.Stream) {
	_ = s.SetDeadline(time.Now().Add(storedTime))
	var q storedQuestion
	err := json.NewDecoder(io.LimitReader(s, 4096)).Decode(&q)
	if err == nil {
		err = json.NewEncoder(s).Encode(r.ownStored(q))
	}
	if err != nil {
		_ = s.Reset()
		return
	}
	// The asker may be gone: it is its loss.
	_ = s.Close()
}

// storedRoute is a stored response by its ID, or the cancelling of one.
func storedRoute(rest string) (route, bool) {
	id, ok := strings.CutPrefix(rest, "responses/")
	if of, cancel := strings.CutSuffix(id, "/cancel"); ok && cancel && of != "" && !strings.Contains(of, "/") {
		return route{
			name: "cancel_response", method: http.MethodPost, scope: keys.ScopeInfer, dialect: openai.Plain, model: of,
			serve: (*Router).cancelResponse,
		}, true
	}
	if !ok || id == "" || strings.Contains(id, "/") {
		return route{}, false
	}
	return route{
		name: "stored_response", method: http.MethodGet, also: http.MethodDelete, scope: keys.ScopeInfer, dialect: openai.Plain, model: id,
		serve: (*Router).storedResponse,
	}, true
}

func (r *Router) storedResponse(t *request) {
	q := storedQuestion{ID: t.route.model, Key: t.key.ID, Delete: t.req.Method == http.MethodDelete}
	one, e := r.findStored(t.req.Context(), q)
	switch {
	case e != nil:
		t.fail(e)
	case one == nil:
		t.fail(noStored(q.ID))
	case q.Delete:
		t.json(map[string]any{"id": q.ID, "object": "response", "deleted": true})
	default:
		t.raw(one.Document)
	}
}

// cancelResponse refuses: what is stored is complete, since none runs in the
// background.
func (r *Router) cancelResponse(t *request) {
	one, e := r.findStored(t.req.Context(), storedQuestion{ID: t.route.model, Key: t.key.ID})
	switch {
	case e != nil:
		t.fail(e)
	case one == nil:
		t.fail(noStored(t.route.model))
	default:
		t.fail(notInBackground(t.route.model))
	}
}

// earlier finds what a request goes on from. Nil: it begins anew.
func (i *inference) earlier() ([]byte, *openai.Error) {
	id := i.own.req.PreviousResponse
	if id == "" {
		return nil, nil
	}
	one, e := i.t.r.findStored(i.t.req.Context(), storedQuestion{ID: id, Key: i.t.key.ID})
	switch {
	case e != nil:
		return nil, e
	case one == nil:
		e = noStored(id)
		e.Param = "previous_response_id"
		return nil, e
	}
	return one.Items, nil
}

// keeping is an answer that is stored once it is whole.
type keeping struct {
	*responses.Answer
	i     *inference
	items []byte // of the input
	done  bool
}

func (k *keeping) Feed(p []byte) []byte {
	out := k.Answer.Feed(p)
	k.keep()
	return out
}

func (k *keeping) Finish() []byte {
	out := k.Answer.Finish()
	k.keep()
	return out
}

func (k *keeping) Whole(body []byte) ([]byte, *openai.Error) {
	out, e := k.Answer.Whole(body)
	if e == nil {
		k.store(out)
	}
	return out, e
}

// keep stores a stream's response before its client hears that it is complete.
func (k *keeping) keep() {
	if k.Complete() {
		k.store(k.Document())
	}
}

func (k *keeping) store(document []byte) {
	if k.done {
		return
	}
	k.done = true
	items, err := joinLists(k.items, k.Output())
	if err != nil {
		return // of our own making: it cannot be
	}
	k.i.t.r.stored.put(&storedResponse{id: k.ID(), Key: k.i.t.key.ID, Document: document, Items: items, used: k.i.t.r.now()})
}

// joinLists makes one JSON list of two.
func joinLists(a, b []byte) ([]byte, error) {
	var first, second []json.RawMessage
	if err := json.Unmarshal(a, &first); err != nil {
		return nil, fmt.Errorf("join items: %w", err)
	}
	if err := json.Unmarshal(b, &second); err != nil {
		return nil, fmt.Errorf("join items: %w", err)
	}
	return json.Marshal(append(first, second...))
}

func noStored(id string) *openai.Error {
	return &openai.Error{
		Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: "response_not_found",
		Message: fmt.Sprintf("no response %q is stored for this API key: one is kept for an hour, in the memory of the box that was asked", clip(id)),
		Hint:    "send the whole conversation as input",
	}
}

func notInBackground(id string) *openai.Error {
	return &openai.Error{
		Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: "invalid_request_error",
		Message: fmt.Sprintf("response %q cannot be cancelled: it is complete, and only one made with background=true, which no model here makes, can be", clip(id)),
		Hint:    "to end an answer that is under way, close its connection",
	}
}

func storedAway() *openai.Error {
	return &openai.Error{
		Status: http.StatusServiceUnavailable, Type: openai.TypeUnavailable, Code: "node_unreachable",
		Message: "the box that stores this response does not answer: try again, or send the whole conversation as input",
		Hint:    "llmgw nodes", RetryAfter: time.Second,
	}
}
