package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// NamespacePrices holds the price table: a row for each model, provider, or
// model of a provider, with a cell for each price.
const NamespacePrices = "prices"

// PriceKind is what is paid for.
type PriceKind string

// Kinds of prices, in micro-units per million tokens; a picture in micro-units
// each.
const (
	PriceInput       PriceKind = "input"
	PriceCachedInput PriceKind = "cached_input" // read from a cache; not set: as input
	PriceCacheWrite  PriceKind = "cache_write"  // written to a cache; not set: as input
	PriceOutput      PriceKind = "output"
	PriceAudioInput  PriceKind = "audio_input"  // not set: as input
	PriceAudioOutput PriceKind = "audio_output" // not set: as output
	PriceImage       PriceKind = "image"
)

// PriceKinds lists all kinds in the order in which they are shown.
func PriceKinds() []PriceKind {
	return []PriceKind{PriceInput, PriceCachedInput, PriceCacheWrite, PriceOutput, PriceAudioInput, PriceAudioOutput, PriceImage}
}

// Price is one row of the price table. Model and Provider say what it is for; an
// empty one stands for all.
type Price struct {
	Model    string               `json:"model,omitempty"` // ID
	Provider string               `json:"provider,omitempty"`
	Micros   map[PriceKind]uint64 `json:"micros"`
}

// PriceError says why a price cannot be as it is.
type PriceError struct{ Why string }

func (e *PriceError) Error() string { return e.Why }

// Prices lists the price table, by model and provider, without rows that cannot be read.
func (c *Catalog) Prices() ([]Price, error) {
	out, err := listRows(c, NamespacePrices, priceFromRow)
	slices.SortFunc(out, func(a, b Price) int {
		if a.Model != b.Model {
			return strings.Compare(a.Model, b.Model)
		}
		return strings.Compare(a.Provider, b.Provider)
	})
	return out, err
}

func priceFromRow(key crdt.Key, row crdt.Row) (Price, error) {
	parts, err := keyParts(key, "price", 2)
	if err != nil {
		return Price{}, unreadable(key, row, err)
	}
	p := Price{Model: parts[0], Provider: parts[1], Micros: map[PriceKind]uint64{}}
	var errs []error
	for _, kind := range PriceKinds() {
		if len(row.Cells[string(kind)].Value) > 0 {
			var micros uint64
			errs = append(errs, decode(row, string(kind), &micros))
			p.Micros[kind] = micros
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Price{}, unreadable(key, row, err)
	}
	return p, nil
}

// SetPrice writes the kinds that p names and leaves the others as they are.
// Errors: *PriceError, *NameError, *UnreadableError, or one of the store.
func (c *Catalog) SetPrice(p Price) error {
	if err := CheckPrice(p); err != nil {
		return err
	}
	key, err := priceKey(p.Model, p.Provider)
	if err != nil {
		return err
	}
	cells := map[string]any{}
	for kind, micros := range p.Micros {
		cells[string(kind)] = micros
	}
	_, err = c.store.Update(func(tx *store.Tx) error {
		if err := readable(tx, key, priceFromRow); err != nil {
			return err
		}
		return writeSet(tx, key, nil, cells)
	})
	if err != nil {
		return fmt.Errorf("set price: %w", err)
	}
	return nil
}

// UnsetPrice takes a row out of the price table; ErrNotFound if there is none.
func (c *Catalog) UnsetPrice(model, provider string) error {
	key, err := priceKey(model, provider)
	if err != nil {
		return err
	}
	_, err = c.store.Update(func(tx *store.Tx) error { return deleteRow(tx, key) })
	if err != nil {
		return fmt.Errorf("unset price of model %q, provider %q: %w", model, provider, err)
	}
	return nil
}

func priceKey(model, provider string) (crdt.Key, error) {
	if model == "" && provider == "" {
		return "", &PriceError{"a price is for a model, a provider or a model of a provider"}
	}
	for _, name := range []string{model, provider} {
		if name == "" {
			continue
		}
		if err := CheckName(name); err != nil {
			return "", err
		}
	}
	return crdt.NewKey(NamespacePrices, FoldName(model), FoldName(provider)), nil
}
