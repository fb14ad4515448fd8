package node

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"

	"llmgw/mesh/catalog"
	"llmgw/router"
)

// readProviders reads the services outside the mesh that can be used, those that
// are asked first at the start. What two boxes set at once may not go together:
// such a provider is left out, and shown with the reason.
func (n *Node) readProviders() ([]*catalog.Provider, error) {
	all, err := n.catalog.Providers()
	if err != nil {
		return nil, err
	}
	out := make([]*catalog.Provider, 0, len(all))
	for _, p := range all {
		if err := p.Check(); err != nil {
			n.log.Debug("a provider cannot be used", slog.Any("error", err))
			continue
		}
		out = append(out, &p)
	}
	return out, nil
}

// reach is a model of the mesh with all that may answer for it.
func (v *view) reach(m catalog.Model) router.ModelView {
	return router.WithProviders(router.WithHosts(v.route(m), v.hosts), v.providers)
}

// outside is what hosts and providers make of a name that no model of the mesh
// has.
func (v *view) outside(name string) (router.ModelView, bool) {
	m, _ := router.OutsideView(name, v.providers)
	m = router.WithHosts(m, v.hosts)
	return m, len(m.Replicas) > 0
}

// outsideModels are the models that only hosts and providers have: those with names of
// their own, and those that providers offer by a pattern.
func (v *view) outsideModels(offered []string) []router.ModelView {
	var out []router.ModelView
	names := append(router.OutsideNames(v.providers), offered...)
	for _, h := range v.hosts {
		names = append(names, h.Provider.HostNames(h.Status)...)
	}
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		folded := catalog.FoldName(name)
		if seen[folded] {
			continue
		}
		seen[folded] = true
		if _, held := catalog.Resolve(v.models, name); held || v.withheld[folded] {
			continue
		}
		if _, routed := catalog.ResolveRoute(v.routes, name); routed {
			continue
		}
		if m, ok := v.outside(name); ok {
			out = append(out, m)
		}
	}
	return out
}

// via names this mesh to providers. It tells members of it, and nobody else, that
// a request comes from here.
func (n *Node) via() string {
	sum := sha256.Sum256([]byte("llmgw via\n" + n.mesh.MeshID()))
	return router.Via(hex.EncodeToString(sum[:8]))
}

// heldBy says which models of the mesh a provider answers to as well.
func (v *view) heldBy(p *catalog.Provider) []string {
	var out []string
	for _, m := range v.models {
		if slices.ContainsFunc(append([]string{m.Name}, m.Aliases...), func(name string) bool {
			_, _, ok := p.Match(name)
			return ok
		}) {
			out = append(out, m.Name)
		}
	}
	return out
}
