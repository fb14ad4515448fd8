package affinity

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const benchBlocks = 10_000_000

// filled is an index with ten million blocks, as chains of 2,048.
func filled(rng *rand.Rand) (*index, []Chain) {
	x := newIndex(benchBlocks, 1<<50)
	var chains []Chain
	for x.blocks+MaxLinks <= benchBlocks {
		c := make(Chain, MaxLinks)
		for i := range c {
			c[i] = Link{Hash(rng.Uint64() >> (64 - hashBits)), uint32(i+1) * 128}
		}
		chains = append(chains, c)
		x.use(c, 0)
	}
	return x, chains
}

// BenchmarkIndexLookup looks up prompts of 2,048 blocks, warm to a random
// depth, in an index of ten million blocks; p99 is of single look-ups.
func BenchmarkIndexLookup(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	x, chains := filled(rng)
	took := make([]time.Duration, 0, 1<<20)
	query := make(Chain, MaxLinks)
	for b.Loop() {
		copy(query, chains[rng.IntN(len(chains))])
		depth := rng.IntN(MaxLinks)
		for i := depth; i < MaxLinks; i++ {
			query[i].Hash = Hash(rng.Uint64() >> (64 - hashBits))
		}
		began := time.Now()
		got := x.depth(query, 0, 10)
		took = append(took, time.Since(began))
		if got != depth {
			b.Fatalf("depth %d, want %d", got, depth)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-µs")
	b.ReportMetric(float64(x.bytes())/float64(x.blocks), "bytes/block")
}

// BenchmarkIndexInsert makes prompts of 2,048 new blocks warm in a full index:
// each block drops another.
func BenchmarkIndexInsert(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	x, _ := filled(rng)
	c := make(Chain, MaxLinks)
	for b.Loop() {
		for i := range c {
			c[i] = Link{Hash(rng.Uint64() >> (64 - hashBits)), uint32(i+1) * 128}
		}
		x.use(c, 0)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/MaxLinks, "ns/block")
}

// BenchmarkPick chooses among eight replicas for prompts of 128 blocks, half of
// them warm, with all that a request costs a head.
func BenchmarkPick(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	p := NewPicker(1)
	var cs []Candidate
	for i := range 8 {
		cs = append(cs, Candidate{Replica: Replica(rng.Uint64()), Slots: 8, KVTokens: 4 << 20, Remote: i > 0})
	}
	chains := make([]Chain, 4096)
	for i := range chains {
		chains[i] = make(Chain, 128)
		for k := range chains[i] {
			chains[i][k] = Link{Hash(rng.Uint64() >> (64 - hashBits)), uint32(k+1) * 128}
		}
		if i%2 == 1 {
			copy(chains[i], chains[i-1][:64])
		}
	}
	now := time.Unix(1e9, 0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c := chains[i%len(chains)]
		t := p.Pick(Query{Chain: c, Tokens: c.Tokens(), Root: uint64(c[0].Hash)}, cs, now)
		t.First(now)
		t.Done(now)
		if i%64 == 0 {
			p.Flush(now)
		}
	}
}
