package store

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"sort"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// The log is kept in blocks, one or few for all that a commit changed, because a write of its own for each entry costs as much as
// the row does. A block is stored under the number of its first entry, and holds for each, in order
//
//	number less the one before, or less the block's (unsigned varint) | length of the key (unsigned varint) | key
//
// When a row changes again, its entry is stale: the row says a higher number. It is left where it is until nothing in its
// block counts any more, which is then deleted, or less than half, which is then written anew without it. So there are never more
// stale entries than others, and each entry is written about twice in all. What is stale is known in memory, by a bit for each entry
// of a block that has any, and found out again by Open.

// blockBytes is from what size on no entry is added to a block: rewriting one stays cheap, and so does reading the part of one that a
// pull begins in.
const blockBytes = 64 << 10

// blockSpan is above how far apart the numbers in a block are: a transaction takes fewer writes. What is stale takes a bit for each.
const blockSpan = 1 << 16

// change is one entry of the log.
type change struct {
	seq uint64
	key crdt.Key
}

// logBlock is what is known of a block.
type logBlock struct {
	first   uint64
	last    uint64
	entries int      // those on disk
	live    int      // those of them that are not stale; 0: the block is gone
	stale   []uint64 // a bit for each number from first on; none while all are live
}

func (l *logBlock) isStale(seq uint64) bool {
	bit := seq - l.first
	return bit/64 < uint64(len(l.stale)) && l.stale[bit/64]&(1<<(bit%64)) != 0
}

func (l *logBlock) retire(seq uint64) {
	if l.isStale(seq) {
		return
	}
	if l.stale == nil {
		l.stale = make([]uint64, (l.last-l.first)/64+1)
	}
	bit := seq - l.first
	l.stale[bit/64] |= 1 << (bit % 64)
	l.live--
}

// sparse says whether less than half of the block counts.
func (l *logBlock) sparse() bool { return l.live > 0 && 2*l.live < l.entries }

// packedBlock is a block that is to be written.
type packedBlock struct {
	logBlock
	data []byte
}

// packLog packs entries, which are in order.
func packLog(entries []change) (blocks []packedBlock) {
	for _, e := range entries {
		if n := len(blocks); n == 0 || len(blocks[n-1].data) >= blockBytes {
			blocks = append(blocks, packedBlock{logBlock: logBlock{first: e.seq, last: e.seq}})
		}
		addEntry(&blocks[len(blocks)-1], e.seq, e.key)
	}
	return blocks
}

func addEntry[K crdt.Key | []byte](p *packedBlock, seq uint64, key K) {
	p.data = binary.AppendUvarint(p.data, seq-p.last)
	p.data = append(binary.AppendUvarint(p.data, uint64(len(key))), key...)
	p.last = seq
	p.entries++
	p.live++
}

// eachEntry calls each with the entries of a block, in order, until it returns false.
func eachEntry(first uint64, data []byte, each func(seq uint64, key []byte) (bool, error)) error {
	span := uint64(0)
	for begin, more := true, true; more && (begin || len(data) > 0); begin = false {
		step, key, rest, ok := cutEntry(data)
		if !ok || step == 0 && !begin || step >= blockSpan-span || first+span+step < first {
			return fmt.Errorf("log block %d: entry after %d: %w", first, first+span, ErrCorrupt)
		}
		span, data = span+step, rest
		var err error
		if more, err = each(first+span, key); err != nil {
			return fmt.Errorf("log entry %d: %w", first+span, err)
		}
	}
	return nil
}

// cutEntry splits the first entry off a block.
func cutEntry(data []byte) (step uint64, key, rest []byte, ok bool) {
	step, n := binary.Uvarint(data)
	if n <= 0 {
		return 0, nil, nil, false
	}
	size, m := binary.Uvarint(data[n:])
	if m <= 0 || size > uint64(len(data)-n-m) {
		return 0, nil, nil, false
	}
	data = data[n+m:]
	return step, data[:size], data[size:], true
}

// eachLogged calls each with the entries of the log from a number on, in order, stale ones too, until it returns false.
func eachLogged(txn *badger.Txn, from uint64, each func(seq uint64, key crdt.Key) (bool, error)) error {
	start, err := blockOf(txn, from)
	if err != nil {
		return err
	}
	it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte(logPrefix)})
	defer it.Close()
	more := true
	for it.Seek(logKey(start)); it.Valid() && more; it.Next() {
		first, err := parseLogKey(it.Item().Key())
		if err != nil {
			return err
		}
		data, err := it.Item().ValueCopy(nil)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		err = eachEntry(first, data, func(seq uint64, key []byte) (bool, error) {
			if seq >= from {
				more, err = each(seq, crdt.Key(key))
			}
			return more, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// blockOf is the number of the block that an entry is in, if it is in any.
func blockOf(txn *badger.Txn, seq uint64) (uint64, error) {
	it := txn.NewIterator(badger.IteratorOptions{Reverse: true})
	defer it.Close()
	// In reverse, seeking goes to the greatest key that is not above.
	it.Seek(logKey(seq))
	if !it.ValidForPrefix([]byte(logPrefix)) {
		return seq, nil
	}
	return parseLogKey(it.Item().Key())
}

// staleEntry says whether an entry is stale, given the number that its row says, 0 when there is none. A row that is removed may leave
// stale entries behind; that happens below the floor of the log alone, so that above it a row that is missing is damage.
func staleEntry(txn *badger.Txn, c change, at uint64) (bool, error) {
	if at >= c.seq {
		return at > c.seq, nil
	}
	if at == 0 {
		floor, _, err := get(txn, []byte(sysFloor))
		if err != nil {
			return false, err
		}
		if len(floor) == 8 && c.seq <= beUint64(floor) {
			return true, nil
		}
	}
	return false, fmt.Errorf("log entry %d names row %s, which is number %d: %w", c.seq, c.key, at, ErrCorrupt)
}

// logBlocks knows all blocks of the log. It is guarded by writer; readers of the log see the blocks on disk alone.
type logBlocks struct {
	all    []logBlock // in order; those that are gone stay until they are the most
	gone   int
	sparse []uint64 // numbers of blocks to be written anew
}

// find is the block that an entry is in; nil when it is in none.
func (l *logBlocks) find(seq uint64) *logBlock {
	i := sort.Search(len(l.all), func(i int) bool { return l.all[i].first > seq })
	if i == 0 || l.all[i-1].live == 0 || seq > l.all[i-1].last {
		return nil
	}
	return &l.all[i-1]
}

// retire notes that entries are stale.
func (l *logBlocks) retire(seqs []uint64) {
	for _, seq := range seqs {
		block := l.find(seq)
		if block == nil {
			continue
		}
		was := block.sparse()
		block.retire(seq)
		if block.live == 0 {
			*block = logBlock{first: block.first}
			l.gone++
		}
		if !was && block.sparse() {
			l.sparse = append(l.sparse, block.first)
		}
	}
	if l.gone > len(l.all)/2 {
		l.all, l.gone = slices.DeleteFunc(l.all, func(b logBlock) bool { return b.live == 0 }), 0
	}
}

// take notes what a batch wrote.
func (l *logBlocks) take(b *batch) {
	l.retire(b.retired)
	for _, p := range b.blocks {
		l.all = append(l.all, p.logBlock)
	}
}

// loadLog finds out what is in the log. numbers, sorted, are those that the rows say. It also returns the highest number.
func loadLog(txn *badger.Txn, numbers []uint64) (blocks logBlocks, last uint64, err error) {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte(logPrefix)})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		first, err := parseLogKey(it.Item().Key())
		if err != nil {
			return logBlocks{}, 0, err
		}
		block := logBlock{first: first}
		var stale []uint64
		err = it.Item().Value(func(data []byte) error {
			return eachEntry(first, data, func(seq uint64, _ []byte) (bool, error) {
				block.last = seq
				block.entries++
				block.live++
				if !contains(numbers, seq) {
					stale = append(stale, seq)
				}
				return true, nil
			})
		})
		if err != nil {
			return logBlocks{}, 0, err
		}
		if len(blocks.all) > 0 && first <= last {
			return logBlocks{}, 0, fmt.Errorf("log block %d begins before %d, where another ends: %w", first, last, ErrCorrupt)
		}
		last = block.last
		blocks.all = append(blocks.all, block)
		blocks.retire(stale)
	}
	return blocks, last, nil
}

// tell adds an entry to the log, which makes the one that the row had stale; 0: it had none.
func (b *batch) tell(key crdt.Key, had uint64) {
	b.told = append(b.told, change{b.seq, key})
	b.bytes += len(key) + 4
	if had != 0 {
		b.retire(had)
	}
}

func (b *batch) retire(seq uint64) {
	b.retired = append(b.retired, seq)
	b.writes++ // perhaps its block goes
}

// writeLog writes the entries of the batch, and what it changes in older blocks.
func (b *batch) writeLog() error {
	slices.Sort(b.retired)
	b.retired = slices.Compact(b.retired)
	// Of a row that changed twice in the batch the first entry is never written.
	b.told = slices.DeleteFunc(b.told, func(c change) bool { return contains(b.retired, c.seq) })
	b.blocks = packLog(b.told)
	for _, p := range b.blocks {
		if err := b.set(logKey(p.first), p.data); err != nil {
			return err
		}
	}
	for rest := b.retired; len(rest) > 0; {
		block := b.store.blocks.find(rest[0])
		if block == nil {
			rest = rest[1:]
			continue
		}
		n := sort.Search(len(rest), func(i int) bool { return rest[i] > block.last })
		if block.live <= n {
			if err := b.remove(logKey(block.first)); err != nil {
				return err
			}
		}
		rest = rest[n:]
	}
	return nil
}

// tidied makes the block anew, without what is stale.
func (l *logBlock) tidied(txn *badger.Txn) (packedBlock, error) {
	p := packedBlock{logBlock: logBlock{first: l.first, last: l.first}}
	data, _, err := get(txn, logKey(l.first))
	if err != nil {
		return p, err
	}
	err = eachEntry(l.first, data, func(seq uint64, key []byte) (bool, error) {
		if !l.isStale(seq) {
			addEntry(&p, seq, key)
		}
		return true, nil
	})
	return p, err
}

func contains(sorted []uint64, n uint64) bool {
	_, found := slices.BinarySearch(sorted, n)
	return found
}

// tidyLog writes blocks anew of which less than half counts. That is not flushed: what a power cut takes of it is found and
// done again. Where it cannot be done now, the next commit does. The caller holds writer.
func (s *Store) tidyLog() {
	for len(s.blocks.sparse) > 0 && s.writable() == nil {
		if err := s.tidySome(); err != nil {
			s.log.Warn("the log was not tidied", slog.String("error", err.Error()))
			return
		}
	}
}

// tidySome writes a transaction's worth of blocks.
func (s *Store) tidySome() error {
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	var done []packedBlock
	rest, size := s.blocks.sparse, 0
	for ; len(rest) > 0 && size < pageBytes/2; rest = rest[1:] {
		block := s.blocks.find(rest[0])
		if block == nil || !block.sparse() {
			continue
		}
		p, err := block.tidied(txn)
		if err != nil {
			return err
		}
		if err := txn.Set(logKey(p.first), p.data); err != nil {
			return err
		}
		done, size = append(done, p), size+len(p.data)
	}
	if err := txn.Commit(); err != nil {
		return err
	}
	for _, p := range done {
		s.blocks.find(p.first).entries = p.entries
	}
	s.blocks.sparse = rest
	return nil
}
