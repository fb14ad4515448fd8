package catalog

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"llmgw/crdt"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
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

func TestPricesSayWhatIsWrong(t *testing.T) {
	one := map[PriceKind]uint64{PriceInput: 1}
	const kinds = "input, cached_input, cache_write, output, audio_input, audio_output, image"
	for name, c := range map[string]struct {
		price Price
		want  string
	}{
		"for nobody":       {Price{Micros: one}, "a price is for a model, a provider or a model of a provider"},
		"nobody, nothing":  {Price{}, "a price is for a model, a provider or a model of a provider"},
		"of nothing":       {Price{Model: "m"}, "no price was given"},
		"of an empty list": {Price{Model: "m", Micros: map[PriceKind]uint64{}}, "no price was given"},
		"of air":           {Price{Model: "m", Micros: map[PriceKind]uint64{"air": 1, PriceInput: 1}}, `no price is named "air": there are ` + kinds},
		"of two airs":      {Price{Model: "m", Micros: map[PriceKind]uint64{"b": 1, "a": 1}}, `no price is named "a": there are ` + kinds},
		"of no name":       {Price{Model: "m", Micros: map[PriceKind]uint64{"": 1}}, `no price is named "": there are ` + kinds},
		"of another case":  {Price{Model: "m", Micros: map[PriceKind]uint64{"Input": 1}}, `no price is named "Input": there are ` + kinds},
		"too high":         {Price{Provider: "p", Micros: map[PriceKind]uint64{PriceImage: crdt.MaxAmount + 1}}, "the price of image is above 281474976710655"},
	} {
		b := quickBox(t)
		refused[*PriceError](t, CheckPrice(c.price), c.want)
		refused[*PriceError](t, b.SetPrice(c.price), c.want)
		if b.store.Sequence() != 0 {
			t.Errorf("%s: something was written", name)
		}
	}
	b := quickBox(t)
	for _, p := range []Price{{Model: "a b", Micros: one}, {Model: "m", Provider: "a b", Micros: one}} {
		want := `model name "a b": holds ' '; ` + allowedInNames
		refused[*NameError](t, CheckPrice(p), want)
		refused[*NameError](t, b.SetPrice(p), want)
		refused[*NameError](t, b.UnsetPrice(p.Model, p.Provider), want)
	}
	refused[*PriceError](t, b.UnsetPrice("", ""), "a price is for a model, a provider or a model of a provider")
	if err := b.UnsetPrice("M", "P"); err == nil || err.Error() != `unset price of model "M", provider "P": not found` {
		t.Errorf("error is %v", err)
	}
}

func TestPricesAtTheirBoundsAreTaken(t *testing.T) {
	b := quickBox(t)
	long := strings.Repeat("n", maxNameBytes)
	want := Price{long, long, map[PriceKind]uint64{}}
	for _, kind := range PriceKinds() {
		want.Micros[kind] = crdt.MaxAmount
	}
	must(t, b.SetPrice(want))
	free := Price{Model: "a", Micros: map[PriceKind]uint64{PriceInput: 0}}
	must(t, b.SetPrice(free))
	got, err := b.Prices()
	must(t, err)
	equal(t, "prices", []Price{free, want}, got)
}

// A model, a provider and a model of a provider are three rows, however they are called.
func TestPricesAreListedByModelAndProvider(t *testing.T) {
	b := quickBox(t)
	var want []Price
	for i, of := range [][2]string{{"", "a"}, {"", "b"}, {"a", ""}, {"a", "a"}, {"a", "b"}, {"a/b", ""}, {"a/b", "c"}, {"b", ""}} {
		want = append(want, Price{of[0], of[1], map[PriceKind]uint64{PriceOutput: uint64(i)}})
	}
	for i := range want {
		p := want[len(want)-1-i]
		must(t, b.SetPrice(Price{strings.ToUpper(p.Model), strings.ToUpper(p.Provider), p.Micros}))
	}
	got, err := b.Prices()
	must(t, err)
	equal(t, "prices", want, got)
	must(t, b.UnsetPrice("A", "B"))
	got, err = b.Prices()
	must(t, err)
	equal(t, "without one", slices.Delete(want, 4, 5), got)
}

// Kinds that are set on two boxes at once both stay, for each pair of sets.
func TestPricesOfTwoBoxesBothStay(t *testing.T) {
	a, b := quickBox(t), quickBox(t)
	rapid.Check(t, func(t *rapid.T) {
		onA, onB := prices().Draw(t, "on a"), prices().Draw(t, "on b")
		onB.Model, onB.Provider = onA.Model, onA.Provider
		want := Price{onA.Model, onA.Provider, maps.Clone(onA.Micros)}
		for kind, micros := range onB.Micros {
			if _, both := onA.Micros[kind]; both {
				delete(onB.Micros, kind)
			} else {
				want.Micros[kind] = micros
			}
		}
		must(t, a.SetPrice(onA))
		if len(onB.Micros) > 0 {
			must(t, b.SetPrice(onB))
		}
		key, err := priceKey(onA.Model, onA.Provider)
		must(t, err)
		send(t, a, b, key)
		send(t, b, a, key)
		for _, side := range []box{a, b} {
			got, err := priceFromRow(key, side.row(t, key))
			must(t, err)
			equal(t, "price", want, got)
		}
	})
}
