package ui

import "context"

// PlacementAdmin explains and changes where models are placed.
type PlacementAdmin interface {
	Why(ctx context.Context, r WhyRequest) (WhyResult, error)
	WhatIf(ctx context.Context, r WhatIfRequest) (WhatIfResult, error)
	// SetModel changes the settings of a model that the request names.
	SetModel(ctx context.Context, r ModelRequest) (ModelResult, error)
	// SetNode changes what an admin says of a node.
	SetNode(ctx context.Context, r NodeRequest) (NodeResult, error)
}

// WhyRequest asks why a model is where it is.
type WhyRequest struct {
	Model string `json:"model"`
}

// WhyResult explains each wanted or owned slot of a model.
type WhyResult struct {
	Schema
	Model   string        `json:"model"` // name
	Slots   List[WhySlot] `json:"slots"` // none: it is not wanted and nobody has it
	State   string        `json:"state"` // served, stopped
	Problem string        `json:"problem"`
	Fix     string        `json:"fix"`
}

// WhySlot explains one slot.
type WhySlot struct {
	Slot        int             `json:"slot"`
	Owner       string          `json:"owner"`    // node name; empty: nobody
	OwnerID     string          `json:"owner_id"` // its peer ID
	Reason      string          `json:"reason"`
	Epoch       uint64          `json:"epoch"`
	Device      string          `json:"device"`  // ID of the owner's device; empty: the CPU
	Demand      bool            `json:"demand"`  // requests asked for it; it stays until it is idle
	Steward     string          `json:"steward"` // name of the node that decides it
	Unsatisfied bool            `json:"unsatisfied"`
	Unread      bool            `json:"unread"` // its assignment cannot be read; who runs it goes on
	Nodes       List[Candidate] `json:"nodes"`
}

// Candidate is a node in the eyes of a decision.
type Candidate struct {
	Node   string `json:"node"` // name
	Why    string `json:"why"`  // why not; empty: it could be given the model
	Owns   bool   `json:"owns"`
	Serves bool   `json:"serves"`
	Slots  int    `json:"slots"` // that it owns of all models
}

// WhatIfRequest asks what a change would do. What is empty does not change.
type WhatIfRequest struct {
	Without  List[string] `json:"without"`   // names or peer IDs of nodes that would be gone
	AddBytes int64        `json:"add_bytes"` // memory of a box that would be there
	Model    string       `json:"model"`     // a model of the catalog, or a file: source, that would be wanted
}

// WhatIfResult tells the fate of each wanted slot.
type WhatIfResult struct {
	Schema
	Outcomes List[Outcome] `json:"outcomes"`
}

// LoadTime is an estimate from loads that were seen.
type LoadTime struct {
	Seconds float64 `json:"seconds"`
	From    string  `json:"from"`  // what it is taken from, for a person
	Fetch   bool    `json:"fetch"` // the file has to be fetched first, which is not counted
}

// Outcome is the fate of one slot under a change.
type Outcome struct {
	Model  string `json:"model"` // name
	Slot   int    `json:"slot"`
	Before string `json:"before"` // node name; empty: nobody
	After  string `json:"after"`
	Effect string `json:"effect"` // kept, moved, lost, gained, missing
	Reason string `json:"reason"`
	// Load is how long the load on the node After would take, as seen before.
	Load *LoadTime `json:"load"`
}

// ModelRequest changes settings of a model; nil leaves one as it is.
type ModelRequest struct {
	Model       string             `json:"model"`
	State       *string            `json:"state"`        // served, stopped
	Replicas    *int               `json:"replicas"`     // always wanted
	Max         *int               `json:"max"`          // wanted while requests ask for them; at least replicas
	IdleSeconds *int64             `json:"idle_seconds"` // how long one above replicas stays without a request; 0: until its memory is needed
	Require     *map[string]string `json:"require"`      // replaces all
	Forbid      *map[string]string `json:"forbid"`       // replaces all
	// Context and MaxOutput bound a request and its answer, in tokens; 0: the engine decides.
	Context       *int  `json:"context"`
	MaxOutput     *int  `json:"max_output"`
	EndRepetition *bool `json:"end_repetition"` // an answer that only repeats itself is ended
}

// ModelLimits bound requests to a model, in tokens; 0: the engine decides.
type ModelLimits struct {
	Context       int  `json:"context"`
	MaxOutput     int  `json:"max_output"`
	EndRepetition bool `json:"end_repetition"`
}

// ModelResult is the model as it is after a change.
type ModelResult struct {
	Schema
	Model Model `json:"model"`
}

// NodeRequest changes what an admin says of a node; nil leaves it as it is.
type NodeRequest struct {
	Node     string            `json:"node"`   // name or peer ID
	Labels   map[string]string `json:"labels"` // set or replaced one by one; an empty value removes
	Location *string           `json:"location"`
	Cordoned *bool             `json:"cordoned"`
	Draining *bool             `json:"draining"`
	Devices  List[string]      `json:"devices"` // IDs: cordoned is meant for these alone
}

// NodeResult is the node as it is after a change.
type NodeResult struct {
	Schema
	Node Node `json:"node"`
}

// Why asks why a model is where it is.
func (c *Client) Why(ctx context.Context, r WhyRequest) (WhyResult, error) {
	return post[WhyResult](ctx, c, "models/why", r)
}

// WhatIf asks what a change would do.
func (c *Client) WhatIf(ctx context.Context, r WhatIfRequest) (WhatIfResult, error) {
	return post[WhatIfResult](ctx, c, "whatif", r)
}

// SetModel changes settings of a model.
func (c *Client) SetModel(ctx context.Context, r ModelRequest) (ModelResult, error) {
	return post[ModelResult](ctx, c, "models/settings", r)
}

// SetNode changes what is said of a node.
func (c *Client) SetNode(ctx context.Context, r NodeRequest) (NodeResult, error) {
	return post[NodeResult](ctx, c, "nodes/settings", r)
}
