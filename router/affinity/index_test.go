package affinity

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// chainOf makes a chain of one-token blocks; equal beginnings of path give
// equal links.
func chainOf(path ...int) Chain {
	b := NewBuilder("test")
	for _, step := range path {
		b.Add([]byte{byte(step), byte(step >> 8), 0, 0})
	}
	return b.Chain()
}

// checkIndex fails unless the table, the list and the counts agree.
func checkIndex(t interface{ Fatalf(string, ...any) }, x *index) {
	count, tokens := 0, int64(0)
	if x.blocks > 0 {
		for i := x.oldest(); i != 0; i = x.at(i).newer() {
			count++
			tokens += int64(x.at(i).tokens())
			if at, _ := x.find(x.at(i).hash()); at != i {
				t.Fatalf("block %d is not found by its hash, but %d", i, at)
			}
		}
	}
	used := 0
	for _, e := range x.table {
		if e != 0 {
			used++
		}
	}
	if count != x.blocks || tokens != x.tokens || used != x.blocks {
		t.Fatalf("%d blocks of %d tokens are listed, %d in the table; counted are %d and %d", count, tokens, used, x.blocks, x.tokens)
	}
}

func TestIndexKeepsItsLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 40).Draw(t, "limit")
		x := newIndex(limit, int64(limit))
		path := rapid.SliceOfN(rapid.IntRange(0, 2), 1, 12)
		now := stamp(65000) // comes round within the test
		t.Repeat(map[string]func(*rapid.T){
			"use": func(t *rapid.T) {
				c := chainOf(path.Draw(t, "path")...)
				x.use(c, now)
				if got := x.depth(c, now, 10); got != min(len(c), limit) {
					t.Fatalf("%d of %d blocks are warm right after use, limit %d", got, len(c), limit)
				}
			},
			"forget": func(t *rapid.T) {
				c := chainOf(path.Draw(t, "path")...)
				x.forget(c, 0)
				if d := x.depth(c, now, 1000); d != 0 {
					t.Fatalf("%d blocks are warm after forget", d)
				}
				x.clear() // what followed the forgotten has no beginning now
			},
			"later":  func(t *rapid.T) { now += stamp(rapid.IntRange(1, 400).Draw(t, "units")) },
			"expire": func(*rapid.T) { x.expire(now, 300, 5) },
			"limit": func(t *rapid.T) {
				limit = rapid.IntRange(1, 40).Draw(t, "limit")
				x.limit(limit, int64(limit))
			},
			"": func(t *rapid.T) {
				checkIndex(t, x)
				if x.blocks > limit {
					t.Fatalf("%d blocks, limit %d", x.blocks, limit)
				}
				c := chainOf(path.Draw(t, "path")...)
				if got, want := x.depth(c, now, 500), linearDepth(x, c, now, 500); got != want {
					t.Fatalf("depth %d by halving, %d one by one", got, want)
				}
			},
		})
	})
}

func linearDepth(x *index, c Chain, now, ttl stamp) int {
	for n, l := range c {
		if i, _ := x.find(l.Hash); i == 0 || x.at(i).stamp().age(now) > ttl {
			return n
		}
	}
	return len(c)
}

func TestIndexDropsTheEndOfWhatWasUsedLongestAgo(t *testing.T) {
	x := newIndex(6, 100)
	old, fresh := chainOf(1, 2, 3, 4), chainOf(5, 6, 7, 8)
	x.use(old, 0)
	x.use(fresh, 0)
	if a, b := x.depth(old, 0, 1), x.depth(fresh, 0, 1); a != 2 || b != 4 {
		t.Errorf("%d blocks of the old and %d of the new prompt are left, want 2 and 4", a, b)
	}
}

func TestIndexIsBoundedByTokens(t *testing.T) {
	x := newIndex(1000, 5)
	x.use(chainOf(1, 2, 3, 4, 5, 6, 7, 8), 0)
	if x.tokens != 5 || x.blocks != 5 {
		t.Errorf("%d tokens in %d blocks, want 5", x.tokens, x.blocks)
	}
}

func TestIndexGivesItsMemoryBack(t *testing.T) {
	x := newIndex(1<<20, 1<<30)
	rng := rand.New(rand.NewPCG(1, 2))
	var chains []Chain
	for range 2000 {
		chains = append(chains, chainOf(rng.Perm(20)...))
		x.use(chains[len(chains)-1], 0)
	}
	checkIndex(t, x)
	if x.bytes() == 0 {
		t.Fatal("it took no memory")
	}
	for _, c := range chains {
		x.forget(c, 0)
	}
	if x.blocks != 0 || x.tokens != 0 || x.bytes() != 0 {
		t.Errorf("%d blocks, %d tokens, %d bytes are left", x.blocks, x.tokens, x.bytes())
	}
}

func TestFullIndexTakes24BytesABlock(t *testing.T) {
	const blocks = 300_000
	x := newIndex(blocks, 1<<40)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 3 * blocks {
		x.touch(Hash(rng.Uint64()>>(64-hashBits)), 1, 0)
	}
	if per := float64(x.bytes()) / float64(x.blocks); x.blocks != blocks || per > 24 {
		t.Errorf("%d blocks of %.1f bytes, want %d of at most 24", x.blocks, per, blocks)
	}
}

func TestStampsOfTheFutureAreFresh(t *testing.T) {
	for _, c := range []struct{ used, now, want stamp }{{5, 9, 4}, {65535, 3, 4}, {9, 5, 0}} {
		if got := c.used.age(c.now); got != c.want {
			t.Errorf("used at %d, now %d: age %d, want %d", c.used, c.now, got, c.want)
		}
	}
}
