package router

import (
	"llmgw/router/affinity"
	"llmgw/router/keys"
	"llmgw/router/openai"
)

// explanation is what a request with X-LLMGW-Explain: 1 is answered with: no
// engine is asked.
type explanation struct {
	Object       string      `json:"object"` // "llmgw.explanation"
	Model        string      `json:"model"`
	Node         string      `json:"node"` // that chose
	PromptTokens int         `json:"prompt_tokens"`
	Blocks       int         `json:"blocks"`
	Session      bool        `json:"session"` // the conversation has a name
	Candidates   []candidate `json:"candidates"`
}

// candidate is a replica with its predicted time to the first token. Times are
// in milliseconds, the rate is in tokens a second.
type candidate struct {
	Model    string  `json:"model"` // ID
	Node     string  `json:"node"`
	Peer     string  `json:"peer"`
	Slot     int     `json:"slot"`
	Epoch    uint64  `json:"epoch"`
	Local    bool    `json:"local"`
	Chosen   bool    `json:"chosen"`
	CostMs   float64 `json:"cost_ms"`
	Warm     int     `json:"warm_tokens"`
	New      int     `json:"new_tokens"`
	Pending  int     `json:"pending_tokens"`
	InFlight int     `json:"in_flight"`
	Slots    int     `json:"slots,omitempty"`
	Rate     float64 `json:"prefill_rate"`
	WaitMs   float64 `json:"slot_wait_ms"`
	HopMs    float64 `json:"hop_ms"`
	Excluded string  `json:"excluded,omitempty"` // why
}

// explain answers with the choice instead of making it.
func (i *inference) explain() *openai.Error {
	if !i.t.key.Allows(keys.ScopeAdmin) {
		return noScope(keys.ScopeAdmin)
	}
	o, e := i.look()
	if e != nil {
		return e
	}
	r := i.t.r
	out := explanation{
		Object: "llmgw.explanation", Model: o.views[0].Model.ID, Node: r.cfg.Node, PromptTokens: i.query.Tokens,
		Blocks: len(i.query.Chain), Session: i.query.Session != 0, Candidates: []candidate{},
	}
	for k, c := range r.picker.Explain(i.query, candidates(o.replicas), r.now()) {
		out.Candidates = append(out.Candidates, candidateOf(o.replicas[k], c))
	}
	i.t.json(out)
	return nil
}

func candidateOf(r Replica, c affinity.Cost) candidate {
	const ms = 1e6
	return candidate{
		Model: r.Model, Node: r.Node, Peer: r.Peer, Slot: r.Slot, Epoch: r.Epoch, Local: r.Local, Chosen: c.Chosen,
		CostMs: float64(c.Total) / ms, Warm: c.Warm, New: c.New, Pending: c.Pending, InFlight: c.InFlight, Slots: r.Slots,
		Rate: c.Rate, WaitMs: float64(c.Wait) / ms, HopMs: float64(c.Hop) / ms, Excluded: c.Why,
	}
}
