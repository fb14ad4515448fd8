package affinity

import (
	"math/bits"
	"time"
)

// maxBlocks is what 24-bit numbers can name, less the list's root and the one
// block that is there for a moment before the oldest goes.
const maxBlocks = 1<<24 - 2

// index is the set of blocks that one replica is believed to have computed, in
// the order of their last use. Blocks of a prompt that were used at once are
// in order from its beginning on, the beginning used last. So what is dropped
// from the far end is always a prompt's last block, as engines do it; each
// block that is here has all blocks before it here; and the longest warm
// prefix of a chain is found by halving.
//
// Memory is 16 bytes a block and 4 for each place of the table, of which at most
// five in eight are taken: 22.4 bytes a block where the index is full, in slices
// without pointers.
type index struct {
	chunks [][]block // block i is chunks[i>>chunkBits][i&chunkMask]; 0 is the list's root
	made   uint32    // blocks ever made, the root included
	free   uint32    // first of the unused blocks, linked by older; 0: none
	table  []uint32  // open addressing: block<<8 | 8 bits of its hash; 0: empty

	blocks    int
	tokens    int64
	maxBlocks int
	maxTokens int64
}

// block holds its hash and the stamp of its last use in key; newer, older and
// its tokens in link.
type block struct{ key, link uint64 }

const (
	chunkBits = 12
	chunkMask = 1<<chunkBits - 1
	numMask   = 1<<24 - 1
	minTable  = 64
)

func (b *block) hash() Hash     { return Hash(b.key >> 16) }
func (b *block) stamp() stamp   { return stamp(b.key) }
func (b *block) newer() uint32  { return uint32(b.link >> 40) }
func (b *block) older() uint32  { return uint32(b.link>>16) & numMask }
func (b *block) tokens() uint32 { return uint32(b.link & 0xffff) }

func (b *block) setNewer(i uint32) { b.link = b.link&^(numMask<<40) | uint64(i)<<40 }
func (b *block) setOlder(i uint32) { b.link = b.link&^(numMask<<16) | uint64(i)<<16 }
func (b *block) setStamp(s stamp)  { b.key = b.key&^0xffff | uint64(s) }

// stamp is a time in stampUnit; it comes round after three days.
type stamp uint16

const (
	stampUnit = 4 * time.Second
	maxTTL    = 24 * time.Hour
)

func stampOf(t time.Time) stamp { return stamp(t.Unix() / int64(stampUnit/time.Second)) }

// age in units. A stamp from the future is one of a clock that was set back.
func (s stamp) age(now stamp) stamp {
	if d := now - s; d < 1<<15 {
		return d
	}
	return 0
}

func newIndex(blocks int, tokens int64) *index {
	x := &index{}
	x.limit(blocks, tokens)
	x.clear()
	return x
}

// clear forgets all and gives the memory back.
func (x *index) clear() {
	x.chunks, x.table = nil, nil
	x.made, x.free, x.blocks, x.tokens = 0, 0, 0, 0
}

// limit sets the bounds and drops what is beyond.
func (x *index) limit(blocks int, tokens int64) {
	x.maxBlocks, x.maxTokens = min(max(blocks, 1), maxBlocks), max(tokens, 1)
	x.shrink()
}

func (x *index) at(i uint32) *block { return &x.chunks[i>>chunkBits][i&chunkMask] }

// home is where a hash's search begins: its place among all hashes.
func (x *index) home(h Hash) int {
	hi, _ := bits.Mul64(uint64(h)<<(64-hashBits), uint64(len(x.table)))
	return int(hi)
}

func (x *index) next(slot int) int {
	if slot++; slot < len(x.table) {
		return slot
	}
	return 0
}

// find gives a hash's block, 0 for none, and its place in the table.
func (x *index) find(h Hash) (uint32, int) {
	if x.blocks == 0 {
		return 0, 0
	}
	for slot := x.home(h); ; slot = x.next(slot) {
		e := x.table[slot]
		if e == 0 {
			return 0, slot
		}
		if byte(e) == byte(h) && x.at(e>>8).hash() == h {
			return e >> 8, slot
		}
	}
}

// depth says how many blocks of c from its beginning on are here and were used
// within ttl.
func (x *index) depth(c Chain, now, ttl stamp) int {
	low, high := 0, len(c)
	for low < high {
		// The first block decides most of the time, as a prompt is new or not.
		middle := (low + high) / 2
		if low == 0 && high == len(c) {
			middle = 0
		}
		if i, _ := x.find(c[middle].Hash); i != 0 && x.at(i).stamp().age(now) <= ttl {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// use makes the chain warm. It goes from the end to the beginning: see index.
func (x *index) use(c Chain, now stamp) {
	for i := len(c) - 1; i >= 0; i-- {
		x.touch(c[i].Hash, c.tokens(i), now)
	}
}

func (x *index) touch(h Hash, tokens uint32, now stamp) {
	if i, _ := x.find(h); i != 0 {
		x.unlink(i)
		x.push(i)
		x.at(i).setStamp(now)
		return
	}
	x.insert(h, min(tokens, 0xffff), now)
	x.shrink()
}

func (x *index) insert(h Hash, tokens uint32, now stamp) {
	if (x.blocks+1)*8 > len(x.table)*5 {
		x.grow()
	}
	i := x.alloc()
	*x.at(i) = block{key: uint64(h)<<16 | uint64(now), link: uint64(tokens)}
	x.push(i)
	x.blocks++ // find looks at nothing before
	x.tokens += int64(tokens)
	_, slot := x.find(h)
	x.table[slot] = i<<8 | uint32(byte(h))
}

// grow makes the table larger, up to what the bound on blocks needs.
func (x *index) grow() {
	full := (x.maxBlocks+1)*8/5 + 2 // one more than the bound, for a moment
	old := x.table
	x.table = make([]uint32, min(max(2*len(old), minTable), max(full, minTable)))
	for _, e := range old {
		if e == 0 {
			continue
		}
		slot := x.home(x.at(e >> 8).hash())
		for x.table[slot] != 0 {
			slot = x.next(slot)
		}
		x.table[slot] = e
	}
}

// alloc gives an unused block.
func (x *index) alloc() uint32 {
	if i := x.free; i != 0 {
		x.free = x.at(i).older()
		return i
	}
	if x.made == 0 {
		x.more()
		x.made = 1 // the root, linked to itself
	}
	if x.made&chunkMask == 0 {
		x.more()
	}
	x.made++
	return x.made - 1
}

func (x *index) more() { x.chunks = append(x.chunks, make([]block, 1<<chunkBits)) }

func (x *index) unlink(i uint32) {
	b := x.at(i)
	x.at(b.newer()).setOlder(b.older())
	x.at(b.older()).setNewer(b.newer())
}

// push makes i the newest.
func (x *index) push(i uint32) {
	root := x.at(0)
	first := root.older()
	b := x.at(i)
	b.setNewer(0)
	b.setOlder(first)
	x.at(first).setNewer(i)
	root.setOlder(i)
}

// oldest gives the block that was not used for longest; 0: there is none.
func (x *index) oldest() uint32 {
	if x.blocks == 0 {
		return 0
	}
	return x.at(0).newer()
}

func (x *index) shrink() {
	for x.blocks > x.maxBlocks || x.tokens > x.maxTokens && x.blocks > 0 {
		x.drop(x.oldest())
	}
}

// expire drops at most budget blocks that were not used within ttl, and
// reports how many.
func (x *index) expire(now, ttl stamp, budget int) int {
	dropped := 0
	for dropped < budget {
		i := x.oldest()
		if i == 0 || x.at(i).stamp().age(now) <= ttl {
			break
		}
		x.drop(i)
		dropped++
	}
	return dropped
}

// forget drops the chain's blocks from number n on.
func (x *index) forget(c Chain, n int) {
	for i := len(c) - 1; i >= n; i-- {
		if at, _ := x.find(c[i].Hash); at != 0 {
			x.drop(at)
		}
	}
}

func (x *index) drop(i uint32) {
	b := x.at(i)
	_, slot := x.find(b.hash())
	x.vacate(slot)
	x.unlink(i)
	x.blocks--
	x.tokens -= int64(b.tokens())
	if x.blocks == 0 {
		x.clear()
		return
	}
	b.setOlder(x.free)
	x.free = i
}

// vacate empties a place of the table and moves up what was pushed past it.
func (x *index) vacate(slot int) {
	for s := x.next(slot); x.table[s] != 0; s = x.next(s) {
		home := x.home(x.at(x.table[s] >> 8).hash())
		if x.distance(home, s) >= x.distance(slot, s) {
			x.table[slot] = x.table[s]
			slot = s
		}
	}
	x.table[slot] = 0
}

func (x *index) distance(from, to int) int {
	if to >= from {
		return to - from
	}
	return to - from + len(x.table)
}

// bytes is the memory that the index has taken.
func (x *index) bytes() int { return len(x.chunks)*(16<<chunkBits) + 4*len(x.table) }
