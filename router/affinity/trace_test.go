package affinity

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// Targets of eight heads with a fifth of their messages lost, against one head.
const (
	targetHits = 0.97 // at least
	targetTTFT = 1.10 // at most
)

func policies() []string {
	return []string{"ours", "index not shared", "round robin", "least load", "sglang 0.3/64/1.5", "hit count"}
}

func newPolicy(name string, heads int) policy {
	switch name {
	case "ours":
		return newOurs(heads, false)
	case "index not shared":
		return newOurs(heads, true)
	case "round robin":
		return newCounting(heads, roundRobin)
	case "least load":
		return newCounting(heads, leastLoad)
	case "hit count":
		return newCounting(heads, hitCount)
	}
	return newCounting(heads, sglang)
}

func report(name string, heads int, loss float64, o outcome) string {
	return fmt.Sprintf("%-18s %5d %5.0f%% %9.3f %9.2f %9.2f %8.2f", name, heads, 100*loss, o.hits, o.mean.Seconds(), o.p90.Seconds(), o.spread)
}

const reportHead = "policy             heads  lost  hit rate  TTFT s     p90 s   spread"

// TestTraces runs ours over the conversation trace and all policies over its
// beginning. TRACE=full runs all over both, with each number of heads, and
// prints a table and the figure.
func TestTraces(t *testing.T) {
	if os.Getenv("TRACE") == "full" {
		fullTraces(t)
		return
	}
	whole, part := 0, 2000
	if testing.Short() {
		whole, part = 1200, 1200
	}
	trace := loadTrace(t, "conversation", whole)
	one := simulate(trace, 1, 0, newPolicy("ours", 1))
	t.Log(reportHead)
	t.Log(report("ours", 1, 0, one))
	lossy := simulate(trace, 8, 0.2, newPolicy("ours", 8))
	t.Log(report("ours", 8, 0.2, lossy))
	if !testing.Short() {
		check(t, one, lossy) // a part of a trace is too little for a ratio
	}
	trace = trace[:part]
	lossy = simulate(trace, 8, 0.2, newPolicy("ours", 8))
	t.Log(report("ours", 8, 0.2, lossy))
	for _, name := range policies()[1:] {
		o := simulate(trace, 8, 0, newPolicy(name, 8))
		t.Log(report(name, 8, 0, o))
		if o.mean < lossy.mean {
			t.Errorf("%s has a mean TTFT of %v, ours with lost messages %v", name, o.mean, lossy.mean)
		}
	}
}

// check holds eight heads with losses against one.
func check(t *testing.T, one, lossy outcome) (hits, ttft float64) {
	t.Helper()
	hits, ttft = lossy.hits/one.hits, float64(lossy.mean)/float64(one.mean)
	if hits < targetHits || ttft > targetTTFT {
		t.Errorf("8 heads with 20 %% lost: %.3f of one head's hits, %.3f of its mean TTFT", hits, ttft)
	}
	return hits, ttft
}

func fullTraces(t *testing.T) {
	var figure string
	for _, name := range []string{"synthetic", "conversation"} {
		trace := loadTrace(t, name, 0)
		fmt.Printf("\n%s trace, %d requests, %d replicas of %d tokens\n%s\n", name, len(trace), simReplicas, simKV, reportHead)
		results := make(map[string]outcome)
		for _, p := range policies() {
			for _, heads := range []int{1, 2, 4, 8} {
				for _, loss := range lossesOf(p, heads) {
					o := simulate(trace, heads, loss, newPolicy(p, heads))
					line := report(p, heads, loss, o)
					fmt.Println(line)
					results[fmt.Sprint(p, heads, loss)] = o
				}
			}
		}
		hits, ttft := check(t, results["ours1 0"], results["ours8 0.2"])
		figure += fmt.Sprintf("trace %s: 8 heads, 20 %% lost: hits %.3f of one head's (target >= %.2f), mean TTFT %.3f (target <= %.2f)\n", name, hits, targetHits, ttft, targetTTFT)
	}
	fmt.Print("\n" + figure)
}

// lossesOf says which losses make a difference.
func lossesOf(policy string, heads int) []float64 {
	if policy == "ours" && heads > 1 {
		return []float64{0, 0.05, 0.2}
	}
	return []float64{0}
}

func TestSimulationRepeats(t *testing.T) {
	trace := loadTrace(t, "synthetic", 500)
	a := simulate(trace, 4, 0.2, newPolicy("ours", 4))
	b := simulate(trace, 4, 0.2, newPolicy("ours", 4))
	if a != b {
		t.Errorf("the same run gave %+v and %+v", a, b)
	}
	if a.mean <= 0 || a.mean > time.Hour || a.hits <= 0 {
		t.Errorf("nothing was simulated: %+v", a)
	}
}

// oneHotPrefix is traffic of which nine tenths share eight blocks.
func oneHotPrefix(n int) []traced {
	var out []traced
	for i := range n {
		r := traced{at: time.Duration(i) * 50 * time.Millisecond, input: 12 * traceBlock, output: 50}
		for k := range 12 {
			id := int64(k)
			if k >= 8 || i%10 == 0 {
				id = int64(1000 + i*12 + k)
			}
			r.chain = append(r.chain, Link{traceHash(id), uint32(k+1) * traceBlock})
		}
		out = append(out, r)
	}
	return out
}

func TestHotPrefixDoesNotHeatOneReplica(t *testing.T) {
	trace := oneHotPrefix(2000)
	least := simulate(trace, 1, 0, newPolicy("least load", 1))
	for _, heads := range []int{1, 8} {
		o := simulate(trace, heads, 0.2, newPolicy("ours", heads))
		t.Log(report("ours", heads, 0.2, o), report("least load", 1, 0, least))
		if o.spread > 1.5 || o.p90 > 2*least.p90 {
			t.Errorf("%d heads: the busiest replica has %.2f of the mean load, p90 TTFT %v; least load has %v", heads, o.spread, o.p90, least.p90)
		}
	}
}
