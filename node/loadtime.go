package node

import (
	"fmt"
	"slices"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// seenLoad is a load that some node has told of.
type seenLoad struct {
	node, model string
	bytes, ms   int64
}

// loadTime estimates from loads that were seen how long a model would load on a
// node: the same model there, else elsewhere, else by the rate of another model.
// imagined is a model that is not in the catalog; nil: there is none. Nil:
// nothing was seen that it could be taken from.
func (v *view) loadTime(model, node string, imagined *catalog.Model) *ui.LoadTime {
	m, ok := catalog.Resolve(v.models, model)
	if !ok && imagined != nil && imagined.ID == model {
		m, ok = *imagined, true
	}
	best, found := v.nearestLoad(m, node)
	if !ok || !found {
		return nil
	}
	out := &ui.LoadTime{Seconds: float64(best.ms) / 1000, Fetch: !v.hasFile(node, m.Source.Digest)}
	switch {
	case best.model == m.ID && best.node == node:
		out.From = "as it took there"
	case best.model == m.ID:
		out.From = "as it took on " + v.name(best.node)
	default:
		out.Seconds *= float64(m.Source.SizeBytes) / float64(best.bytes)
		out.From = fmt.Sprintf("at the rate of %s on %s", best.model, v.name(best.node))
	}
	return out
}

// nearestLoad prefers the model to others, and the node to others; of as good ones
// the slowest.
func (v *view) nearestLoad(m catalog.Model, node string) (seenLoad, bool) {
	loads := v.loads()
	if len(loads) == 0 {
		return seenLoad{}, false
	}
	rank := func(l seenLoad) (n int) {
		if l.model == m.ID {
			n += 2
		}
		if l.node == node {
			n++
		}
		return n
	}
	return slices.MaxFunc(loads, func(a, b seenLoad) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return int(a.ms - b.ms)
	}), true
}

func (v *view) loads() []seenLoad {
	var out []seenLoad
	for _, n := range v.nodes {
		for _, r := range n.Presence.Replicas {
			m, ok := catalog.Resolve(v.models, r.Model)
			if ok && r.LoadMS > 0 && m.Source.SizeBytes > 0 {
				out = append(out, seenLoad{n.ID, m.ID, m.Source.SizeBytes, r.LoadMS})
			}
		}
	}
	return out
}

func (v *view) hasFile(node, digest string) bool {
	n, ok := v.node(node)
	return ok && slices.Contains(n.Presence.Weights, digest)
}
