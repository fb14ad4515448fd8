package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/router/keys"
	"llmgw/router/limits"
	"llmgw/ui"
)

// Keys lists the API keys.
func (a admin) Keys(context.Context) ([]ui.Key, error) {
	list, err := a.keys.List()
	if err != nil {
		return nil, err
	}
	out := make([]ui.Key, 0, len(list))
	for _, k := range list {
		out = append(out, a.uiKey(k))
	}
	return out, nil
}

func (a admin) uiKey(k keys.Info) ui.Key {
	out := ui.Key{
		ID: k.ID, Name: k.Name, Scopes: k.Scopes, Created: k.Created, Creator: a.view.Load().name(k.Creator), First: k.First,
		Project: k.Project, Models: k.Models, Require: labelTexts(k.Nodes.Require), Forbid: labelTexts(k.Nodes.Forbid),
		Origins: k.Origins, Rules: a.uiRules(limits.LevelKey, k.ID, k.Rules),
	}
	if !k.Expires.IsZero() {
		out.Expires = &k.Expires
	}
	return out
}

func labelTexts(labels map[string]string) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, key+"="+labels[key])
	}
	return out
}

// uiRules shows limits, and budgets with what is spent of them by all nodes, as far as
// is known here.
func (a admin) uiRules(level, id string, r catalog.Rules) ui.Rules {
	var out ui.Rules
	for _, m := range catalog.Metrics() {
		if n, ok := r.Limits[m]; ok {
			out.Limits = append(out.Limits, ui.Limit{Metric: string(m), Value: n})
		}
	}
	for _, b := range r.Budgets {
		spent := a.store.Spent(limits.AccountOf(level, id, b.Unit, b.Period, a.meshTime.now()))
		out.Budgets = append(out.Budgets, ui.Budget{Period: string(b.Period), Unit: string(b.Unit), Amount: b.Amount, Hard: b.Hard, Spent: spent})
	}
	return out
}

// NewKey makes an API key.
func (a admin) NewKey(ctx context.Context, r ui.KeyRequest) (ui.KeyResult, error) {
	var g keys.Grant
	if err := a.changeGrant(&g, r.KeyChange); err != nil {
		return ui.KeyResult{}, explainAccess(err, "llmgw keys new --help")
	}
	text, info, err := a.keys.CreateWith(r.Name, r.Scopes, false, g)
	if err != nil {
		return ui.KeyResult{}, explainAccess(err, "llmgw keys new --help")
	}
	return ui.KeyResult{ID: info.ID, Key: text}, a.offer(ctx)
}

// SetKey changes what an API key may do.
func (a admin) SetKey(ctx context.Context, r ui.KeySettings) (ui.KeyAnswer, error) {
	info, err := a.keys.Update(r.Key, func(g *keys.Grant) error { return a.changeGrant(g, r.KeyChange) })
	if err != nil {
		return ui.KeyAnswer{}, explainKey(err, r.Key)
	}
	return ui.KeyAnswer{Key: a.uiKey(info)}, a.offer(ctx)
}

// RevokeKey ends an API key everywhere.
func (a admin) RevokeKey(ctx context.Context, idOrName string) error {
	_, err := a.keys.Revoke(idOrName)
	if errors.Is(err, keys.ErrNotFound) && a.catalog.RemoveUnreadable(catalog.NamespaceKeys, idOrName) == nil {
		err = nil // keys know only of those that can be read
	}
	if err != nil {
		return explainKey(err, idOrName)
	}
	return a.offer(ctx)
}

func explainKey(err error, idOrName string) error {
	if errors.Is(err, keys.ErrNotFound) {
		return &ui.Error{Kind: ui.NotFound, Message: fmt.Sprintf("no API key has the ID or name %q", idOrName), Hint: "llmgw keys ls lists them", Err: err}
	}
	if ambiguous := (*keys.AmbiguousError)(nil); errors.As(err, &ambiguous) {
		return &ui.Error{Kind: ui.Conflict, Err: err, Hint: "name it by its ID: llmgw keys ls lists them"}
	}
	return explainAccess(err, "llmgw keys set --help")
}

// changeGrant makes of a key's rights what is asked for.
func (a admin) changeGrant(g *keys.Grant, c ui.KeyChange) (err error) {
	if c.Project != nil {
		g.Project = *c.Project
	}
	if c.Models != nil {
		g.Models = slices.Compact(slices.Sorted(slices.Values([]string(*c.Models))))
	}
	if c.Origins != nil {
		g.Origins = slices.Compact(slices.Sorted(slices.Values([]string(*c.Origins))))
	}
	if c.Require != nil {
		if g.Nodes.Require, err = parseLabels(*c.Require); err != nil {
			return err
		}
	}
	if c.Forbid != nil {
		if g.Nodes.Forbid, err = parseLabels(*c.Forbid); err != nil {
			return err
		}
	}
	if c.ExpiresSeconds != nil {
		if g.Expires, err = expiry(*c.ExpiresSeconds, a.now()); err != nil {
			return err
		}
	}
	return changeRules(&g.Rules, c.RulesChange)
}

// maxExpiry bounds how far ahead a key may end: beyond, it was mistyped.
const maxExpiry = 100 * 365 * 24 * time.Hour

func expiry(seconds int64, now time.Time) (time.Time, error) {
	switch {
	case seconds < 0 || seconds > int64(maxExpiry/time.Second):
		return time.Time{}, &catalog.KeyError{Field: "expiry", Why: fmt.Sprintf("of %d seconds is not between 0 and 100 years", seconds)}
	case seconds == 0:
		return time.Time{}, nil
	}
	return now.Add(time.Duration(seconds) * time.Second), nil
}

func parseLabels(texts []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, &catalog.LabelError{Label: text, Why: "is not key=value"}
		}
		out[key] = value
	}
	return out, nil
}

// changeRules makes of rules what is asked for; what is not named stays.
func changeRules(r *catalog.Rules, c ui.RulesChange) error {
	next := catalog.RateLimits{}
	maps.Copy(next, r.Limits)
	for _, l := range c.Limits {
		if l.Value == nil {
			delete(next, catalog.Metric(l.Metric))
		} else {
			next[catalog.Metric(l.Metric)] = *l.Value
		}
	}
	r.Limits = next
	for _, b := range c.Budgets {
		period, unit := catalog.Period(b.Period), catalog.Unit(b.Unit)
		if b.Amount == nil {
			r.DropBudget(period, unit)
		} else {
			r.SetBudget(catalog.Budget{Period: period, Unit: unit, Amount: *b.Amount, Hard: b.Hard})
		}
	}
	return r.Check()
}

// explainAccess tells what cannot be written from what failed.
func explainAccess(err error, hint string) error {
	var (
		name  *keys.NameError
		key   *catalog.KeyError
		rules *catalog.RulesError
		group *catalog.GroupError
		label *catalog.LabelError
		price *catalog.PriceError
		model *catalog.NameError
	)
	for _, refused := range []struct {
		is  bool
		err error
	}{
		{errors.As(err, &name), name}, {errors.As(err, &key), key}, {errors.As(err, &rules), rules}, {errors.As(err, &group), group},
		{errors.As(err, &label), label}, {errors.As(err, &price), price}, {errors.As(err, &model), model},
	} {
		if refused.is {
			return &ui.Error{Kind: ui.BadInput, Message: refused.err.Error(), Hint: hint, Err: err}
		}
	}
	return err
}
