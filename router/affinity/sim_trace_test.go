package affinity

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// traceBlock is the tokens of one block of the traces; see testdata/README.md.
const traceBlock = 512

// traced is one request of a trace.
type traced struct {
	at     time.Duration
	input  int
	output int
	chain  Chain
}

// loadTrace reads the first n requests of a trace; n 0: all.
func loadTrace(t testing.TB, name string, n int) []traced {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+"_trace.jsonl.gz"))
	if err != nil {
		t.Fatalf("open trace: %v", err)
	}
	defer func() { _ = f.Close() }()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatalf("unzip trace: %v", err)
	}
	var out []traced
	lines := bufio.NewScanner(unzipped)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && (n == 0 || len(out) < n) {
		var line struct {
			Timestamp    int64   `json:"timestamp"`
			InputLength  int     `json:"input_length"`
			OutputLength int     `json:"output_length"`
			HashIDs      []int64 `json:"hash_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("line %d: %v", len(out)+1, err)
		}
		r := traced{at: time.Duration(line.Timestamp) * time.Millisecond, input: line.InputLength, output: line.OutputLength}
		for i, id := range line.HashIDs {
			r.chain = append(r.chain, Link{traceHash(id), uint32(min((i+1)*traceBlock, line.InputLength))})
		}
		out = append(out, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("read trace: %v", err)
	}
	spreadSteps(out)
	return out
}

// traceHash spreads a trace's small numbers over all hashes (splitmix64).
func traceHash(id int64) Hash {
	z := uint64(id+1) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return Hash((z ^ z>>31) >> (64 - hashBits))
}

// spreadSteps spreads the requests of one time stamp evenly over its 3 s.
func spreadSteps(rs []traced) {
	const step = 3 * time.Second
	for from := 0; from < len(rs); {
		to := from
		for to < len(rs) && rs[to].at == rs[from].at {
			to++
		}
		start := rs[from].at
		for i := from; i < to; i++ {
			rs[i].at = start + step*time.Duration(i-from)/time.Duration(to-from)
		}
		from = to
	}
}
