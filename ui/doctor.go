package ui

import "context"

// DoctorAdmin looks at the ways between boxes, and at this box's own identity.
type DoctorAdmin interface {
	Doctor(ctx context.Context) (DoctorResult, error)
	// RotateIdentity gives the box a new identity and restarts its daemon.
	RotateIdentity(ctx context.Context) (RotateResult, error)
	// Restart ends the daemon and starts it again; engines keep running.
	Restart(ctx context.Context) (RestartResult, error)
}

// DoctorResult is what was found about each peer.
type DoctorResult struct {
	Schema
	Peers List[Diagnosis] `json:"peers"`
}

// Diagnosis is what was found about one peer, in both directions.
type Diagnosis struct {
	ID        string       `json:"id"` // empty: nobody said who is there
	Name      string       `json:"name"`
	Addresses List[string] `json:"addresses"` // that were tried
	Member    bool         `json:"member"`
	Static    bool         `json:"static"`   // given by hand
	Out       List[Check]  `json:"out"`      // from here to there
	In        List[Check]  `json:"in"`       // from there to here, as the peer found
	InError   string       `json:"in_error"` // why In is empty
}

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	Result string `json:"result"`
	Text   string `json:"text"`
}

// RotateResult tells what became of a change of identity.
type RotateResult struct {
	Schema
	ID       string `json:"id"`       // the new peer ID
	Admitted bool   `json:"admitted"` // a member already; else it needs a token
	Left     bool   `json:"left"`     // the old identity has left the mesh
}

// RestartResult is empty: the daemon is about to end.
type RestartResult struct {
	Schema
}

func (u *UI) doctorRoutes() []route {
	b := u.cfg.Backend
	return []route{
		{"POST", "doctor", socketOnly, accept(bare(b.Doctor))},
		{"POST", "identity/rotate", socketOnly, accept(bare(b.RotateIdentity))},
		{"POST", "restart", socketOnly, accept(bare(b.Restart))},
	}
}

// Doctor looks at every peer in both directions; it takes some 10 s when one
// does not answer.
func (c *Client) Doctor(ctx context.Context) (DoctorResult, error) {
	return post[DoctorResult](ctx, c, "doctor", struct{}{})
}

// RotateIdentity gives the box a new identity.
func (c *Client) RotateIdentity(ctx context.Context) (RotateResult, error) {
	return post[RotateResult](ctx, c, "identity/rotate", struct{}{})
}

// Restart starts the daemon again; engines keep running.
func (c *Client) Restart(ctx context.Context) (RestartResult, error) {
	return post[RestartResult](ctx, c, "restart", struct{}{})
}
