package crdt

import (
	"maps"
	"slices"
)

// MessageOverhead is the version byte and the largest head of the array of items.
const MessageOverhead = 1 + 9

// Size returns the bytes that the item takes in a message of EncodeItems.
func (i Item) Size() int {
	size := bareSize(i)
	for name, c := range i.Row.Cells {
		size += cellSize(name, c)
	}
	return size + headSize(uint64(len(i.Row.Cells)))
}

// bareSize is the item without its cells and without the head of their map.
func bareSize(i Item) int {
	return 1 + headSize(uint64(len(i.Key))) + len(i.Key) + headSize(i.Row.Length)
}

func cellSize(name string, c Cell) int {
	return headSize(uint64(len(name))) + len(name) +
		1 + headSize(uint64(c.At)) + headSize(uint64(c.By)) + headSize(uint64(len(c.Value))) + len(c.Value)
}

// headSize is the length of a CBOR head in its shortest form.
func headSize(n uint64) int {
	switch {
	case n < 24:
		return 1
	case n <= 0xff:
		return 2
	case n <= 0xffff:
		return 3
	case n <= 0xffffffff:
		return 5
	}
	return 9
}

// Pack deals items out to messages that each encode to at most maxBytes and hold at most MaxItems, in order. A row
// that does not fit is cut into parts; a single cell that does not fit goes into a message of its own, which is
// the only way in which a message exceeds maxBytes.
func Pack(items []Item, maxBytes int) [][]Item {
	var (
		messages [][]Item
		current  []Item
		used     = MessageOverhead
	)
	add := func(i Item) {
		size := i.Size()
		if len(current) > 0 && (used+size > maxBytes || len(current) == MaxItems) {
			messages = append(messages, current)
			current, used = nil, MessageOverhead
		}
		current = append(current, i)
		used += size
	}
	for _, item := range items {
		if MessageOverhead+item.Size() <= maxBytes {
			add(item)
			continue
		}
		for _, part := range cut(item, maxBytes-MessageOverhead) {
			add(part)
		}
	}
	if len(current) > 0 {
		messages = append(messages, current)
	}
	return messages
}

// cut splits one row into parts of at most maxBytes with one cell or more each, in order of cell names.
func cut(item Item, maxBytes int) []Item {
	// The head of the cell map of a part has three bytes at most for 65,535 cells; nine always suffice.
	base := bareSize(item) + 9
	var parts []Item
	current, used := map[string]Cell{}, base
	for _, name := range slices.Sorted(maps.Keys(item.Row.Cells)) {
		size := cellSize(name, item.Row.Cells[name])
		if len(current) > 0 && used+size > maxBytes {
			parts = append(parts, Item{Key: item.Key, Row: Row{Length: item.Row.Length, Cells: current}})
			current, used = map[string]Cell{}, base
		}
		current[name] = item.Row.Cells[name]
		used += size
	}
	return append(parts, Item{Key: item.Key, Row: Row{Length: item.Row.Length, Cells: current}})
}
