package placement

import (
	"cmp"
	"fmt"
	"slices"

	"llmgw/mesh/catalog"
)

// DefaultEngine is the engine that reads a format when no profile says more.
func DefaultEngine(format string) (string, bool) {
	switch format {
	case catalog.FormatGGUF:
		return catalog.EngineLlamaCpp, true
	case catalog.FormatSim:
		return catalog.EngineSim, true
	}
	return "", false
}

// DefaultProfile is how a model runs when nobody said more; false if no engine
// reads its format.
func DefaultProfile(format string) (catalog.Profile, bool) {
	engine, ok := DefaultEngine(format)
	return catalog.Profile{ID: "default", Engine: engine}, ok
}

// ChooseProfile picks the profile that a node with these engines runs m under:
// of those whose engine is installed the one with the highest priority, ties
// by ID. missing names the engines that would do, when none is installed.
func ChooseProfile(m catalog.Model, installed []catalog.EngineInfo) (p catalog.Profile, missing []string, ok bool) {
	profiles := slices.Clone(m.Profiles)
	if len(profiles) == 0 {
		fallback, known := DefaultProfile(m.Source.Format)
		if !known {
			return catalog.Profile{}, nil, false
		}
		profiles = []catalog.Profile{fallback}
	}
	slices.SortStableFunc(profiles, func(a, b catalog.Profile) int { return b.Priority - a.Priority })
	for _, p := range profiles {
		if slices.ContainsFunc(installed, func(e catalog.EngineInfo) bool { return e.Name == p.Engine }) {
			return p, nil, true
		}
		missing = append(missing, p.Engine)
	}
	return catalog.Profile{}, missing, false
}

// lacks says what keeps n from ever serving m as things are, memory aside;
// empty if nothing does.
func lacks(m catalog.Model, n Node) string {
	_, missing, ok := ChooseProfile(m, n.Presence.Engines)
	switch {
	case !ok && len(missing) == 0:
		return fmt.Sprintf("no engine reads the format %q", m.Source.Format)
	case !ok:
		return fmt.Sprintf("engine %s is not installed (llmgw engines install %s there)", missing[0], missing[0])
	case !slices.Contains(n.Presence.Weights, m.Source.Digest):
		return fmt.Sprintf("the file is not on its disk (llmgw pull %s --as %s there)", m.Source.URI, m.Name)
	}
	return ""
}

// unfit says why n cannot be given a slot of m now; empty if it can. Memory
// that could not be measured is unknown, not zero: it refuses nothing.
func (p *planner) unfit(m catalog.Model, n Node) string {
	if !n.Live {
		return "does not answer now"
	}
	if n.Presence.Stopping {
		return "is stopping"
	}
	if !n.Presence.Complete {
		return "has just started and has not told yet what it has"
	}
	if n.Settings.Cordoned {
		return "is cordoned"
	}
	if why := cmp.Or(m.Labels.Refuses(n.Settings.Labels), lacks(m, n)); why != "" {
		return why
	}
	profile, _, _ := ChooseProfile(m, n.Presence.Engines)
	free := n.Presence.Inventory.RAMFree
	if free == nil {
		return ""
	}
	need, room := m.MemoryNeed(profile), *free-p.spoken[n.ID]
	if need > room {
		return fmt.Sprintf("needs %s of memory, %s is free there", size(need), size(max(room, 0)))
	}
	return ""
}

func size(bytes int64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
