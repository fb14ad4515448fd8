package node

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// priceDoc is a row of the price table; micros are micro-units for a million tokens, by
// kind, or for a picture.
type priceDoc struct {
	Model    string            `yaml:"model,omitempty"`    // empty: all of the provider
	Provider string            `yaml:"provider,omitempty"` // empty: the mesh's own
	Micros   map[string]uint64 `yaml:"micros"`
}

func (a admin) exportPrices(d *document) error {
	prices, err := a.catalog.Prices()
	for _, p := range prices {
		doc := priceDoc{Model: p.Model, Provider: p.Provider, Micros: map[string]uint64{}}
		for kind, micros := range p.Micros {
			doc.Micros[string(kind)] = micros
		}
		d.Prices = append(d.Prices, doc)
	}
	return err
}

// priceName is how a diff calls a row of the table.
func priceName(model, provider string) string {
	switch {
	case provider == "":
		return model
	case model == "":
		return "all of " + provider
	}
	return model + " of " + provider
}

func (p *plan) prices(d document) error {
	if d.Prices == nil {
		return nil
	}
	have, err := p.catalog.Prices()
	if err != nil {
		return err
	}
	rows := map[[2]string]catalog.Price{}
	for _, row := range have {
		rows[[2]string{row.Model, row.Provider}] = row
	}
	var errs []error
	named := map[[2]string]bool{}
	for _, doc := range d.Prices {
		key := [2]string{catalog.FoldName(doc.Model), catalog.FoldName(doc.Provider)}
		if named[key] {
			errs = append(errs, fmt.Errorf("the price of %s stands there twice", priceName(key[0], key[1])))
			continue
		}
		named[key] = true
		before, known := rows[key]
		errs = append(errs, p.price(doc, before, known))
	}
	for _, row := range have {
		if !p.prune || named[[2]string{row.Model, row.Provider}] {
			continue
		}
		p.changes = append(p.changes, ui.Change{Action: ui.ActionDelete, Kind: "price", Name: priceName(row.Model, row.Provider)})
		p.writes = append(p.writes, func() error { return p.catalog.UnsetPrice(row.Model, row.Provider) })
	}
	return errors.Join(errs...)
}

// price plans one row. Kinds that are not named stay; with prune the row is made anew.
func (p *plan) price(doc priceDoc, before catalog.Price, known bool) error {
	set := catalog.Price{Model: catalog.FoldName(doc.Model), Provider: catalog.FoldName(doc.Provider), Micros: map[catalog.PriceKind]uint64{}}
	for kind, micros := range doc.Micros {
		set.Micros[catalog.PriceKind(kind)] = micros
	}
	name := priceName(set.Model, set.Provider)
	if err := catalog.CheckPrice(set); err != nil {
		return fmt.Errorf("price of %s: %w", cmp.Or(name, "nothing"), err)
	}
	want, fewer := maps.Clone(before.Micros), false
	if want == nil || p.prune {
		want = map[catalog.PriceKind]uint64{}
	}
	maps.Copy(want, set.Micros)
	for kind := range before.Micros {
		if _, ok := want[kind]; !ok {
			fewer = true
		}
	}
	p.write("price", name, known, priceFields(before.Micros), priceFields(want), func() error {
		if fewer {
			if err := p.catalog.UnsetPrice(set.Model, set.Provider); err != nil && !errors.Is(err, catalog.ErrNotFound) {
				return err
			}
		}
		return p.catalog.SetPrice(set)
	})
	return nil
}

func priceFields(micros map[catalog.PriceKind]uint64) []field {
	var out []field
	for _, kind := range slices.Sorted(maps.Keys(micros)) {
		out = append(out, field{string(kind), fmt.Sprint(micros[kind])})
	}
	return out
}
