package node

import (
	"fmt"
	"slices"

	"llmgw/crdt"
	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// problems is what an operator should look at, each with what to type. What a
// new box simply has not got yet stands there too: it says the next step.
func (a admin) problems(v *view) []ui.Problem {
	var out []ui.Problem
	// A copy of another box does not serve either; its alarm says that.
	if err, banned := a.mesh.Serving(), a.banned(); err != nil && banned {
		out = append(out, ui.Problem{Text: err.Error(), Fix: "ask an admin to type `llmgw nodes readmit`, then join by a new token; or llmgw leave" + a.stateDirFlag()})
	}
	if err := a.store.Writable(); err != nil {
		out = append(out, ui.Problem{Text: "the shared state cannot be written on this disk: " + err.Error(), Fix: "free space where " + a.cfg.StateDir + " is; writes go on by themselves then"})
	}
	for _, alarm := range a.mesh.Alarms() {
		out = append(out, ui.Problem{Text: alarm.Text, Fix: alarm.Fix})
	}
	out = append(out, a.declared.problems()...)
	out = append(out, a.rowProblems()...)
	out = append(out, a.memberProblems(v)...)
	out = append(out, a.modelProblems(v)...)
	return append(out, a.engineProblems(v)...)
}

// shownRows bounds the rows that cannot be read of which each is shown: a later version
// may have written them all.
const shownRows = 5

// rowProblems names the rows of the catalog that cannot be read here.
func (a admin) rowProblems() []ui.Problem {
	rows, err := a.catalog.Unreadable()
	if err != nil {
		return []ui.Problem{{Text: err.Error()}}
	}
	var out []ui.Problem
	for i, row := range rows {
		if i == shownRows {
			return append(out, ui.Problem{Text: fmt.Sprintf("%d more rows cannot be read", len(rows)-i)})
		}
		text := row.Error()
		switch row.By {
		case 0: // nobody knows
		case a.store.ID():
			text += " (written by this box)"
		default:
			text += fmt.Sprintf(" (written by the store %x)", uint64(row.By))
		}
		out = append(out, ui.Problem{Text: text, Fix: a.removal(row.Key)})
	}
	return out
}

// removal is what to type for a row that cannot be read; empty where its key is not one
// that a command takes.
func (a admin) removal(key crdt.Key) string {
	commands := map[string]string{
		catalog.NamespaceModels: "models rm", catalog.NamespaceRoutes: "routes rm", catalog.NamespaceProviders: "providers rm",
		catalog.NamespaceKeys: "keys revoke", catalog.NamespaceTenants: "tenants rm", catalog.NamespaceProjects: "projects rm", catalog.NamespacePrices: "prices unset",
	}
	const upgrade = "upgrade llmgw here, if another box runs a later one"
	parts, err := key.Parts()
	command, known := commands[key.Namespace()]
	switch {
	case err != nil || !known:
		return upgrade
	case key.Namespace() == catalog.NamespacePrices && len(parts) == 2 && parts[0] == "":
		command, parts = command+" --provider", parts[1:]
	case key.Namespace() == catalog.NamespacePrices && len(parts) == 2 && parts[1] != "":
		command, parts = command+" --provider "+parts[1], parts[:1]
	case key.Namespace() == catalog.NamespacePrices && len(parts) == 2:
		parts = parts[:1]
	}
	if len(parts) != 1 || parts[0] == "" || catalog.CheckName(parts[0]) != nil {
		return upgrade
	}
	return upgrade + ", or remove it: llmgw " + command + " " + parts[0] + a.stateDirFlag()
}

func (a admin) memberProblems(v *view) []ui.Problem {
	var out []ui.Problem
	for _, n := range v.nodes {
		switch {
		case n.Mismatch != "": // an alarm says so
		case n.State == mesh.StateDead:
			out = append(out, deadMember(v, n))
		case n.State == mesh.StateSuspect:
			out = append(out, ui.Problem{Text: fmt.Sprintf("%s has not been heard for a few seconds", v.name(n.ID))})
		}
	}
	return out
}

// deadMember tells a box that is off from the former self of one that is here
// under a new identity.
func deadMember(v *view, n mesh.Node) ui.Problem {
	short := n.ID[max(0, len(n.ID)-8):]
	p := ui.Problem{Text: fmt.Sprintf("%s (%s) is a member and does not answer", v.name(n.ID), short), Fix: "start llmgw there, or look at the network between the boxes: llmgw doctor"}
	for _, other := range v.nodes {
		if other.ID != n.ID && other.Name == n.Name && isLive(other) {
			p.Fix = "a live box has the same name; if this is its former identity: llmgw nodes remove " + n.ID
		}
	}
	return p
}

func (a admin) modelProblems(v *view) []ui.Problem {
	if len(v.models) == 0 {
		return []ui.Problem{{Text: "no model is in the catalog", Fix: "llmgw pull SOURCE --as NAME" + a.stateDirFlag()}}
	}
	var out []ui.Problem
	wanted := false
	for _, m := range v.models {
		loaded := v.route(m).Loaded
		wanted = wanted || m.Scale.Min > 0 || loaded
		if problem, fix := problemOf(v, m, loaded); problem != "" {
			out = append(out, ui.Problem{Text: fmt.Sprintf("%s is wanted and not served: %s", m.Name, problem), Fix: fix})
		}
	}
	out = append(out, aliasProblems(v.models)...)
	if !wanted {
		out = append(out, ui.Problem{Text: "no model is loaded", Fix: "llmgw load " + v.models[0].Name + a.stateDirFlag()})
	}
	return out
}

// engineProblems: a box with no engine but the simulated one computes nothing.
func (a admin) engineProblems(v *view) []ui.Problem {
	if _, known := a.engines.get(); !known {
		return nil
	}
	for _, n := range v.nodes {
		if slices.ContainsFunc(n.Presence.Engines, func(e catalog.EngineInfo) bool { return e.Name != catalog.EngineSim }) {
			return nil
		}
	}
	return []ui.Problem{{Text: "no engine is installed on any box", Fix: "llmgw engines install llamacpp" + a.stateDirFlag()}}
}

// aliasProblems names the words that mean two models: one of them has it.
func aliasProblems(models []catalog.Model) []ui.Problem {
	var out []ui.Problem
	seen := map[string]bool{}
	for _, m := range models {
		for _, alias := range m.Aliases {
			has, _ := catalog.Resolve(models, alias)
			if has.ID == m.ID || seen[m.ID+" "+catalog.FoldName(alias)] {
				continue
			}
			seen[m.ID+" "+catalog.FoldName(alias)] = true
			out = append(out, ui.Problem{Text: fmt.Sprintf("%q is an alias of %s and means %s too, which gets its requests", alias, m.Name, has.Name),
				Fix: "llmgw apply --prune with a file that lists the aliases that " + m.Name + " keeps"})
		}
	}
	return out
}
