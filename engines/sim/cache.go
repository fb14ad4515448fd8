package sim

import (
	"container/list"
	"sync"
)

// promptCache is what a KV cache does, without one: it keeps the prompts that
// were computed, up to a number of tokens, and tells how much of a new one
// begins as one of them does. The prompt used longest ago goes first.
type promptCache struct {
	limit  int // tokens; 0: nothing is kept
	events *publisher

	mu   sync.Mutex
	held int       // tokens
	lru  list.List // of []byte, the last used in front
}

// warm gives the tokens of text that need not be computed again. At least one
// token always is.
func (c *promptCache) warm(text []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	best, found := 0, (*list.Element)(nil)
	for e := c.lru.Front(); e != nil; e = e.Next() {
		if n := common(e.Value.([]byte), text); n > best {
			best, found = n, e
		}
	}
	if found != nil {
		c.lru.MoveToFront(found)
	}
	return max(min(best/bytesPerToken, countTokens(len(text))-1), 0)
}

// computed keeps a prompt, in the place of the one that it goes on from.
func (c *promptCache) computed(text []byte) {
	if c.limit == 0 || countTokens(len(text)) > c.limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	had := c.lru.Front()
	for had != nil && common(had.Value.([]byte), text) < len(had.Value.([]byte)) {
		had = had.Next()
	}
	more := countTokens(len(text))
	if had != nil {
		c.lru.MoveToFront(had)
		more -= countTokens(len(had.Value.([]byte)))
	}
	for c.held+more > c.limit {
		c.drop(c.lru.Back())
	}
	c.lru.PushFront(text)
	c.held += countTokens(len(text))
	c.events.stored(text) // before the shorter one goes, which has its first blocks
	if had != nil {
		c.drop(had)
	}
}

func (c *promptCache) drop(e *list.Element) {
	text := c.lru.Remove(e).([]byte)
	c.held -= countTokens(len(text))
	c.events.removed(text)
}

// clear drops all prompts.
func (c *promptCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Init()
	c.held = 0
	c.events.cleared()
}

// common is the length of the beginning that a and b share.
func common(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
