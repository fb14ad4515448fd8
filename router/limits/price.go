package limits

import (
	"math"
	"math/bits"

	"llmgw/mesh/catalog"
	"llmgw/router/openai"
)

// perTokens is the number of tokens that a price is for.
const perTokens = 1_000_000

// Cost is what a usage costs in micro-units, rounded up. Kinds without a price of
// their own cost what the kind costs that they are a part of.
func Cost(p catalog.Price, u openai.Usage) uint64 {
	price := func(kind, instead catalog.PriceKind) uint64 {
		if micros, ok := p.Micros[kind]; ok {
			return micros
		}
		return p.Micros[instead]
	}
	input, output := u.Input, u.Output
	part := func(of *uint64, n uint64) uint64 {
		n = min(n, *of)
		*of -= n
		return n
	}
	var sum total
	sum.add(part(&input, u.AudioIn), price(catalog.PriceAudioInput, catalog.PriceInput))
	sum.add(part(&input, u.Cached), price(catalog.PriceCachedInput, catalog.PriceInput))
	sum.add(part(&input, u.CacheWrite), price(catalog.PriceCacheWrite, catalog.PriceInput))
	sum.add(input, p.Micros[catalog.PriceInput])
	sum.add(part(&output, u.AudioOut), price(catalog.PriceAudioOutput, catalog.PriceOutput))
	sum.add(output, p.Micros[catalog.PriceOutput])
	return add(sum.micros(), times(u.Images, p.Micros[catalog.PriceImage]))
}

// total adds tokens times prices in 128 bits: a token at a time may cost less than a
// micro-unit.
type total struct{ hi, lo uint64 }

func (t *total) add(tokens, price uint64) {
	hi, lo := bits.Mul64(tokens, price)
	var carry uint64
	t.lo, carry = bits.Add64(t.lo, lo, 0)
	t.hi, carry = bits.Add64(t.hi, hi, carry)
	if carry > 0 {
		t.hi = math.MaxUint64
	}
}

func (t *total) micros() uint64 {
	if t.hi >= perTokens {
		return math.MaxUint64
	}
	n, rest := bits.Div64(t.hi, t.lo, perTokens)
	if rest > 0 {
		n = add(n, 1)
	}
	return n
}

func times(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi > 0 {
		return math.MaxUint64
	}
	return lo
}

func (l *Limiter) cost(model, provider string, u openai.Usage) uint64 {
	p, ok := l.cfg.Book.Price(model, provider)
	if !ok {
		return 0
	}
	return Cost(p, u)
}
