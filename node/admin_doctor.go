package node

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"llmgw/mesh"
	"llmgw/ui"
)

// Doctor looks at every peer in both directions.
func (a admin) Doctor(ctx context.Context) (ui.DoctorResult, error) {
	var out ui.DoctorResult
	for _, d := range a.mesh.Diagnose(ctx) {
		out.Peers = append(out.Peers, ui.Diagnosis{
			ID: d.ID, Name: d.Name, Addresses: d.Addrs, Member: d.Member, Static: d.Static, Out: checks(d.Out), In: checks(d.In), InError: d.InErr,
		})
	}
	return out, ctx.Err()
}

func checks(found []mesh.Check) []ui.Check {
	out := make([]ui.Check, 0, len(found))
	for _, c := range found {
		out = append(out, ui.Check{Name: c.Name, Result: c.Result, Text: c.Text})
	}
	return out
}

// Restart ends this run; the process goes on as a new daemon that adopts the
// engines. It is asked for after the answer, which would be cut else.
func (a admin) Restart(context.Context) (ui.RestartResult, error) {
	a.startAgain()
	return ui.RestartResult{}, nil
}

func (n *Node) startAgain() { n.again.Do(func() { close(n.restart) }) }

// RotateIdentity makes a new key, has the mesh take it for the old one, keeps
// it and starts again under it. The old key is kept beside it: a box that is
// not admitted at once can still be told apart from a stranger by a person.
func (a admin) RotateIdentity(ctx context.Context) (ui.RotateResult, error) {
	_, key, err := ed25519.GenerateKey(a.entropy)
	if err != nil {
		return ui.RotateResult{}, fmt.Errorf("make identity key: %w", err)
	}
	rotation, err := a.mesh.RotateIdentity(ctx, key)
	if err != nil {
		return ui.RotateResult{}, explainRuling(err)
	}
	if err := replaceIdentity(a.cfg.StateDir, key.Seed(), a.now()); err != nil {
		return ui.RotateResult{}, err
	}
	a.startAgain()
	return ui.RotateResult{ID: rotation.Peer, Admitted: rotation.Admitted, Left: rotation.Left}, nil
}
