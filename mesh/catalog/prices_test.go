package catalog

import (
	"errors"
	"testing"

	"llmgw/crdt"

	"github.com/google/go-cmp/cmp"
)

func TestPricesAreSetByKind(t *testing.T) {
	a, b := newBox(t), newBox(t)
	must(t, a.SetPrice(Price{Model: "GPT-4o", Provider: "OpenAI", Micros: map[PriceKind]uint64{PriceInput: 2_500_000, PriceOutput: 10_000_000}}))
	must(t, a.SetPrice(Price{Provider: "openai", Micros: map[PriceKind]uint64{PriceInput: 1}}))
	exchange(t, a, b)
	must(t, a.SetPrice(Price{Model: "gpt-4o", Provider: "openai", Micros: map[PriceKind]uint64{PriceInput: 3_000_000}}))
	must(t, b.SetPrice(Price{Model: "gpt-4o", Provider: "openai", Micros: map[PriceKind]uint64{PriceCachedInput: 0}}))
	exchange(t, a, b)
	got, err := b.Prices()
	must(t, err)
	want := []Price{{Provider: "openai", Micros: map[PriceKind]uint64{PriceInput: 1}},
		{Model: "gpt-4o", Provider: "openai", Micros: map[PriceKind]uint64{PriceInput: 3_000_000, PriceOutput: 10_000_000, PriceCachedInput: 0}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	must(t, b.UnsetPrice("GPT-4o", "openai"))
	if err := b.UnsetPrice("gpt-4o", "openai"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a price that is gone: %v", err)
	}
	must(t, b.SetPrice(Price{Model: "gpt-4o", Provider: "openai", Micros: map[PriceKind]uint64{PriceImage: 5}}))
	got, err = b.Prices()
	must(t, err)
	if len(got) != 2 || len(got[1].Micros) != 1 {
		t.Errorf("it came back with what it had: %+v", got)
	}
	for name, p := range map[string]Price{
		"nobody": {Micros: map[PriceKind]uint64{PriceInput: 1}}, "nothing": {Model: "m"}, "air": {Model: "m", Micros: map[PriceKind]uint64{"air": 1}},
		"too much": {Model: "m", Micros: map[PriceKind]uint64{PriceInput: crdt.MaxAmount + 1}}, "no name": {Model: "a b", Micros: map[PriceKind]uint64{PriceInput: 1}},
	} {
		if err := b.SetPrice(p); err == nil {
			t.Errorf("a price for %s was set", name)
		}
	}
}
