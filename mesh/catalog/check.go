package catalog

import (
	"fmt"
	"maps"
	"slices"
)

// ModelError says which setting of a model cannot be as it is.
type ModelError struct{ Model, Field, Why string }

func (e *ModelError) Error() string { return fmt.Sprintf("model %q: %s %s", e.Model, e.Field, e.Why) }

// CheckModel says whether an entry may be kept so.
func CheckModel(m Model) error {
	fail := func(field, why string, args ...any) error {
		return &ModelError{m.Name, field, fmt.Sprintf(why, args...)}
	}
	switch {
	case m.State != ModelServed && m.State != ModelStopped:
		return fail("state", "%q is neither %s nor %s", m.State, ModelServed, ModelStopped)
	case m.Scale.Min < 0 || m.Scale.Min > MaxReplicas:
		return fail("scale.min", "is %d: want 0 to %d replicas", m.Scale.Min, MaxReplicas)
	case m.Scale.Max < 0 || m.Scale.Max > MaxReplicas:
		return fail("scale.max", "is %d: want 0 to %d replicas", m.Scale.Max, MaxReplicas)
	case m.Scale.Max < m.Scale.Min:
		return fail("scale.max", "is %d, below scale.min, which is %d", m.Scale.Max, m.Scale.Min)
	case m.Scale.Idle < 0:
		return fail("scale.idle", "is below zero")
	case m.Limits.Context < 0 || m.Limits.MaxOutput < 0:
		return fail("limits", "are below zero")
	}
	for _, alias := range m.Aliases {
		if err := CheckName(alias); err != nil {
			return err
		}
		if len(alias) > maxAliasBytes {
			return &NameError{alias, fmt.Sprintf("is longer than %d bytes, which an alias may have", maxAliasBytes)}
		}
	}
	if err := checkProfiles(m, fail); err != nil {
		return err
	}
	if err := m.Labels.check(); err != nil {
		return err
	}
	if cell, why := checkCells(m.cells()); why != "" {
		return fail(cell, "%s", why)
	}
	return nil
}

func checkProfiles(m Model, fail func(string, string, ...any) error) error {
	for i, p := range m.Profiles {
		switch {
		case p.ID == "" || p.Engine == "":
			return fail("profiles", "have one without a name or an engine")
		case slices.ContainsFunc(m.Profiles[:i], func(q Profile) bool { return q.ID == p.ID }):
			return fail("profiles", "have two named %q", p.ID)
		case p.Context < 0 || p.Parallel < 0:
			return fail("profile "+p.ID, "has a context or parallel below zero")
		case p.Weight != 0 && !(p.Weight >= 1.0/MaxWeight && p.Weight <= MaxWeight): // not a number, too
			return fail("profile "+p.ID, "has a weight of %v: want %v to %d", p.Weight, 1.0/MaxWeight, MaxWeight)
		}
	}
	return nil
}

func (s Selector) check() error {
	for _, labels := range []map[string]string{s.Require, s.Forbid} {
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			if err := CheckLabel(key, labels[key]); err != nil {
				return err
			}
		}
	}
	return nil
}
