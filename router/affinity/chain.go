package affinity

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

const (
	// MaxLinks bounds a chain. What a prompt holds beyond it counts as cold.
	MaxLinks = 2048
	// minBlock is the smallest block that is cut from within an element: some
	// 128 tokens. Smaller ones cost more memory than they save computing.
	minBlock = 512 // bytes
	// maxBlock keeps a block's tokens within 16 bits.
	maxBlock = 128 << 10 // bytes
	// growth is the part of a prompt, 1/growth, that one block may be at its
	// place: precision is relative, so long prompts need few blocks.
	growth = 64
	// bytesPerToken is what a token is taken for before an engine has told.
	bytesPerToken = 4
	// hashBits of a hash are kept. With 10 million blocks one wrong match in
	// 25 million look-ups is expected, and it costs only a detour.
	hashBits = 48
)

// Hash names all of a prompt up to the end of one block; hashBits wide.
type Hash uint64

// Link is one block of a prompt.
type Link struct {
	Hash Hash
	End  uint32 // tokens of the prompt up to the end of this block
}

// Chain is a prompt as blocks, each hash covering all blocks before it. Equal
// prompts up to a block have equal chains up to it, whatever follows.
type Chain []Link

// Tokens of the whole chain.
func (c Chain) Tokens() int { return c.to(len(c)) }

// to gives the tokens of the first n blocks.
func (c Chain) to(n int) int {
	if n == 0 {
		return 0
	}
	return int(c[n-1].End)
}

// tokens of block i.
func (c Chain) tokens(i int) uint32 {
	if i == 0 {
		return c[0].End
	}
	return c[i].End - c[i-1].End
}

// Builder makes the chain of a prompt from the raw bytes of its elements.
type Builder struct {
	digest xxhash.Digest
	prev   uint64
	offset int // bytes so far
	cold   int // bytes behind the last link
	chain  Chain
}

// NewBuilder starts a chain. The names are what keeps equal prompts apart: the
// model, an adapter. They are length-prefixed, never joined.
func NewBuilder(names ...string) *Builder { return &Builder{prev: NameHash(names...)} }

// NameHash is one hash of several names.
func NameHash(names ...string) uint64 {
	var d xxhash.Digest
	d.Reset()
	var size [8]byte
	for _, name := range names {
		binary.LittleEndian.PutUint64(size[:], uint64(len(name)))
		_, _ = d.Write(size[:])
		_, _ = d.WriteString(name)
	}
	return d.Sum64()
}

// Add appends an element: the tools, one message, a whole text. Its end is the
// end of a block, however short that is: the next turn of a conversation shares
// whole elements, and nothing at an element's end goes unhashed.
func (b *Builder) Add(raw []byte) {
	for len(raw) > 0 {
		if len(b.chain) == MaxLinks {
			b.offset += len(raw)
			b.cold += len(raw)
			return
		}
		n := min(len(raw), blockSize(b.offset))
		b.link(raw[:n])
		raw = raw[n:]
	}
}

// blockSize depends on nothing but the place, so that equal prefixes are cut
// alike.
func blockSize(offset int) int { return min(max(offset/growth, minBlock), maxBlock) }

func (b *Builder) link(block []byte) {
	b.digest.ResetWithSeed(b.prev)
	_, _ = b.digest.Write(block)
	b.prev = b.digest.Sum64()
	tokens := uint32(TokensOf(len(block)))
	b.chain = append(b.chain, Link{Hash: Hash(b.prev >> (64 - hashBits)), End: uint32(b.chain.Tokens()) + tokens})
	b.offset += len(block)
}

// Chain is what was built; the builder must not be used any more.
func (b *Builder) Chain() Chain { return b.chain }

// Tokens estimates the whole prompt, what is behind the last link included.
func (b *Builder) Tokens() int { return b.chain.Tokens() + TokensOf(b.cold) }

// TokensOf estimates the tokens of that many bytes.
func TokensOf(size int) int { return (size + bytesPerToken - 1) / bytesPerToken }

// SessionHash is a conversation's own name as a hash; never 0.
func SessionHash(root uint64) Hash { return Hash(root>>(64-hashBits)) | 1 }
