package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Faults that a model file may ask for.
const (
	FailLoad       = "load"        // the load ends with exit status 1
	FailStall      = "stall"       // the load never ends and says nothing
	FailMidStream  = "mid_stream"  // each generation of two tokens or more is cut off half-way
	FailCrash      = "crash"       // the first such generation ends the process half-way
	FailExit       = "exit"        // the process ends exit_after_ms after it was loaded
	FailToken      = "token"       // each generation is answered with 500
	FailName       = "wrong_name"  // it serves under another name
	FailIgnoreTerm = "ignore_term" // SIGTERM does not end it
)

var faults = []string{"", FailLoad, FailStall, FailMidStream, FailCrash, FailExit, FailToken, FailName, FailIgnoreTerm}

// Params is the content of a model file.
type Params struct {
	Version      int    `json:"llmgw_sim"`     // 1
	Tokens       int    `json:"tokens"`        // of an answer, unless the request asks for fewer; default 64
	IntervalMS   int    `json:"interval_ms"`   // between tokens; 0: all at once
	PerInterval  int    `json:"per_interval"`  // tokens that come together; default 1
	FirstMS      int    `json:"first_ms"`      // until the first token
	PrefillTPS   int    `json:"prefill_tps"`   // prompt tokens a second that are computed; 0: at once
	CacheTokens  int    `json:"cache_tokens"`  // of prompts that are kept; 0: none
	Slots        int    `json:"slots"`         // generations at once; 0: unlimited
	LoadMS       int    `json:"load_ms"`       // until it is healthy
	EmbeddingDim int    `json:"embedding_dim"` // default 384
	Fail         string `json:"fail"`          // a fault, or empty
	ExitAfterMS  int    `json:"exit_after_ms"` // see FailExit
	KVEvents     string `json:"kv_events"`     // the form of KV events: "map", which is the default, or "array"
}

// Bounds keep a model file from asking for what no process can do.
const (
	maxTokens = 1 << 20
	maxSlots  = 1 << 16
	maxTPS    = 1 << 24
	maxCache  = 1 << 24
	maxMS     = 24 * 60 * 60 * 1000
	maxDim    = 1 << 16
	maxFile   = 64 << 10
)

// ParseParams reads a model file. Unknown fields are refused: a fault that is
// spelled wrong would otherwise never happen.
func ParseParams(r io.Reader) (Params, error) {
	p := Params{Tokens: 64, EmbeddingDim: 384}
	dec := json.NewDecoder(io.LimitReader(r, maxFile))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return Params{}, fmt.Errorf("read sim parameters: %w", err)
	}
	if p.Version != 1 {
		return Params{}, fmt.Errorf("read sim parameters: llmgw_sim is %d, known is 1", p.Version)
	}
	return p, p.check()
}

func (p Params) check() error {
	for _, f := range []struct {
		name       string
		value, max int
	}{
		{"prefill_tps", p.PrefillTPS, maxTPS}, {"cache_tokens", p.CacheTokens, maxCache},
		{"tokens", p.Tokens, maxTokens}, {"slots", p.Slots, maxSlots},
		{"interval_ms", p.IntervalMS, maxMS}, {"per_interval", p.PerInterval, maxTokens}, {"first_ms", p.FirstMS, maxMS},
		{"load_ms", p.LoadMS, maxMS}, {"exit_after_ms", p.ExitAfterMS, maxMS},
		{"embedding_dim", p.EmbeddingDim - 1, maxDim - 1},
	} {
		if f.value < 0 || f.value > f.max {
			return fmt.Errorf("read sim parameters: %s is out of range", f.name)
		}
	}
	if !slices.Contains([]string{"", "map", "array"}, p.KVEvents) {
		return errors.New("read sim parameters: kv_events is neither map nor array")
	}
	if !slices.Contains(faults, p.Fail) {
		return errors.New("read sim parameters: fail is none of " + strings.Join(faults[1:], ", "))
	}
	return nil
}

func (p Params) interval() time.Duration  { return time.Duration(p.IntervalMS) * time.Millisecond }
func (p Params) together() int            { return max(p.PerInterval, 1) }
func (p Params) first() time.Duration     { return time.Duration(p.FirstMS) * time.Millisecond }
func (p Params) load() time.Duration      { return time.Duration(p.LoadMS) * time.Millisecond }
func (p Params) exitAfter() time.Duration { return time.Duration(p.ExitAfterMS) * time.Millisecond }

// Token is the text of the i-th token (from 0).
func Token(i int) string { return "token-" + strconv.Itoa(i) + " " }

// Text is the text of an answer of n tokens.
func Text(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(Token(i))
	}
	return b.String()
}
