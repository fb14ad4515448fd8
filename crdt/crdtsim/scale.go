package crdtsim

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"llmgw/crdt"
)

// Scale simulates many nodes and rows, where a store for each would not fit into memory: a node is its log and, per row, which of
// the writes to the row it knows. Rows, joins and sizes are those of package crdt, and a pull is the one of the mesh: by a
// cursor into the peer's log, which is renumbered where a row changes. There is no gossip: this is what it costs when
// every message is lost.

// ScaleConfig says how many; zero values stand for 1,000 nodes and 10,000 rows.
type ScaleConfig struct {
	Seed        uint64
	Nodes, Rows int
	// Digest has a node that pulls from a peer for the first time compare digests with it, and take only what differs, instead of
	// the whole log.
	Digest bool
}

// ScaleReport says what it took. A round is one pull by every node, from a peer of its choice.
type ScaleReport struct {
	// SpreadRounds and SpreadBytes are for everybody to learn everything, when each row was made by one node and edited by
	// another. Bytes are those that a node receives, on average.
	SpreadRounds int
	SpreadBytes  float64
	// ChangeRounds and ChangeBytes are for everybody to learn of one more write.
	ChangeRounds int
	ChangeBytes  float64
	// RowBytes is what all rows take in one message.
	RowBytes int
}

// writesPerRow is how many nodes write to a row. What a node knows of it is a set of these writes.
const writesPerRow = 3

type scale struct {
	rand   *rand.Rand
	nodes  []*replica
	sizes  [][1 << writesPerRow]int // per row and set of writes known
	digest bool
	bytes  int
}

// replica is one node.
type replica struct {
	log     []int32 // rows in the order in which they were learned; an entry that was moved on stays, out of date
	at      []int32 // per row, the position in the log that counts, and 1; 0: unknown
	known   []uint8 // per row, the writes that are known
	cursors []int32 // per peer, how far its log was pulled
}

// RunScale makes one run.
func RunScale(cfg ScaleConfig) (ScaleReport, error) {
	if cfg.Nodes == 0 {
		cfg.Nodes = 1000
	}
	if cfg.Rows == 0 {
		cfg.Rows = 10_000
	}
	s := &scale{rand: rand.New(rand.NewPCG(cfg.Seed, 0x7363616c65)), sizes: make([][1 << writesPerRow]int, cfg.Rows), digest: cfg.Digest}
	var report ScaleReport
	for row := range cfg.Rows {
		var err error
		if s.sizes[row], err = sizesOf(row); err != nil {
			return report, err
		}
		report.RowBytes += s.sizes[row][1|2]
	}
	for range cfg.Nodes {
		s.nodes = append(s.nodes, &replica{
			at: make([]int32, cfg.Rows), known: make([]uint8, cfg.Rows), cursors: make([]int32, cfg.Nodes),
		})
	}
	for row := range cfg.Rows {
		for write := range 2 {
			s.nodes[s.rand.IntN(cfg.Nodes)].learn(row, 1<<write)
		}
	}
	var err error
	if report.SpreadRounds, report.SpreadBytes, err = s.converge(1 | 2); err != nil {
		return report, err
	}
	s.nodes[0].learn(0, 4)
	report.ChangeRounds, report.ChangeBytes, err = s.converge(1 | 2)
	return report, err
}

// sizesOf makes a row's writes and measures every join of them.
func sizesOf(row int) (sizes [1 << writesPerRow]int, err error) {
	key := crdt.NewKey("models", fmt.Sprintf("m%05d", row))
	for set := 1; set < len(sizes); set++ {
		var joined crdt.Row
		for write := range writesPerRow {
			if set&(1<<write) != 0 {
				joined = crdt.Merge(joined, crdt.Row{Length: 1, Cells: map[string]crdt.Cell{
					fmt.Sprint("cell", write): {At: crdt.HLC(1_800_000_000_000<<16 + row), By: crdt.ReplicaID(uint64(1<<63) + uint64(write)), Value: make([]byte, 40)},
				}})
			}
		}
		data, errRow := crdt.EncodeItems([]crdt.Item{{Key: key, Row: joined}})
		sizes[set], err = len(data)-crdt.MessageOverhead, errors.Join(err, errRow)
	}
	return sizes, err
}

// learn joins writes to a row, and moves it to the end of the log when that changed it.
func (r *replica) learn(row int, writes uint8) {
	if r.known[row]|writes == r.known[row] {
		return
	}
	r.known[row] |= writes
	r.log = append(r.log, int32(row))
	r.at[row] = int32(len(r.log))
}

// pull reads the peer's log from the cursor on.
func (s *scale) pull(to, from int) {
	r, peer := s.nodes[to], s.nodes[from]
	s.bytes += crdt.MessageOverhead
	if s.digest && r.cursors[from] == 0 && len(r.log) >= compareFrom {
		s.compare(r, peer)
		r.cursors[from] = int32(len(peer.log))
		return
	}
	for at := int(r.cursors[from]); at < len(peer.log); at++ {
		row := peer.log[at]
		if peer.at[row] != int32(at+1) {
			continue // moved on
		}
		s.bytes += s.sizes[row][peer.known[row]]
		r.learn(int(row), peer.known[row])
	}
	r.cursors[from] = int32(len(peer.log))
}

const (
	// hasBytes is what it takes to name a row that is known already: the short form of its fingerprint.
	hasBytes = 9
	// compareFrom is how many changes a node has seen before it compares.
	compareFrom = 200
)

// compare takes the rows in which the peer has more: it gets the peer's digest, and names what it has itself in the buckets that
// differ. Rows are spread over the buckets by their number, as evenly as by a hash.
func (s *scale) compare(r, peer *replica) {
	s.bytes += 1 + crdt.DigestBuckets*len(crdt.Fingerprint{})
	for bucket := range min(crdt.DigestBuckets, len(r.known)) {
		rows, has := []int(nil), 0
		for row := bucket; row < len(r.known); row += crdt.DigestBuckets {
			if r.known[row] != 0 {
				has += hasBytes
			}
			if peer.known[row] != r.known[row] {
				rows = append(rows, row)
			}
		}
		if len(rows) == 0 {
			continue
		}
		s.bytes += has
		for _, row := range rows {
			if peer.known[row] != 0 {
				s.bytes += s.sizes[row][peer.known[row]]
				r.learn(row, peer.known[row])
			}
		}
	}
}

// maxRounds is far beyond what any run takes.
const maxRounds = 1000

// converge counts rounds until all nodes know the same, and all of least of each row.
func (s *scale) converge(least uint8) (rounds int, bytesPerNode float64, err error) {
	s.bytes = 0
	for !s.equal(least) {
		if rounds++; rounds > maxRounds {
			return rounds, 0, errors.New("the nodes do not converge")
		}
		for _, to := range s.rand.Perm(len(s.nodes)) {
			from := s.rand.IntN(len(s.nodes) - 1)
			if from >= to {
				from++
			}
			s.pull(to, from)
		}
	}
	return rounds, float64(s.bytes) / float64(len(s.nodes)), nil
}

func (s *scale) equal(least uint8) bool {
	first := s.nodes[0]
	for _, r := range s.nodes {
		if string(r.known) != string(first.known) {
			return false
		}
	}
	for _, known := range first.known {
		if known&least != least {
			return false
		}
	}
	return true
}
