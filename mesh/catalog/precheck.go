package catalog

import (
	"fmt"
	"maps"
	"slices"

	"llmgw/crdt"
)

// Checks of what somebody is about to write, for those who write several documents
// or none.

// GroupID is the ID of a tenant or project that is called so; kind is "tenant" or
// "project". A name that cannot be one is a *GroupError.
func GroupID(kind, name string) (string, error) { return foldGroup(kind, name) }

// CheckRoute says whether a route may be kept so, whatever names are taken:
// *NameError, *RouteError.
func CheckRoute(r Route) error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	return checkRoute(r)
}

// CheckPrice says whether SetPrice takes p: *PriceError, *NameError.
func CheckPrice(p Price) error {
	if _, err := priceKey(p.Model, p.Provider); err != nil {
		return err
	}
	if len(p.Micros) == 0 {
		return &PriceError{"no price was given"}
	}
	for _, kind := range slices.Sorted(maps.Keys(p.Micros)) {
		if !slices.Contains(PriceKinds(), kind) {
			return &PriceError{fmt.Sprintf("no price is named %q: there are %s", kind, joined(PriceKinds()))}
		}
		if p.Micros[kind] > crdt.MaxAmount {
			return &PriceError{fmt.Sprintf("the price of %s is above %d", kind, uint64(crdt.MaxAmount))}
		}
	}
	return nil
}
