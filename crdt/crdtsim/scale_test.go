package crdtsim_test

import (
	"testing"

	"llmgw/crdt/crdtsim"
)

func TestScaleConverges(t *testing.T) {
	cfg := crdtsim.ScaleConfig{Seed: 3, Nodes: 50, Rows: 200}
	first, err := crdtsim.RunScale(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := crdtsim.RunScale(cfg); err != nil || again != first {
		t.Errorf("the same seed ran differently: %+v, %+v, %v", first, again, err)
	}
	// Nobody learns everything for less than its size, and a write does not get to 50 nodes in fewer rounds than it doubles in.
	if first.SpreadBytes < float64(first.RowBytes) || first.ChangeRounds < 3 || first.SpreadRounds < first.ChangeRounds-3 {
		t.Errorf("%+v", first)
	}
}

func TestDigestsSpareAFirstPull(t *testing.T) {
	cfg := crdtsim.ScaleConfig{Seed: 3, Nodes: 50, Rows: 2000}
	whole, err := crdtsim.RunScale(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Digest = true
	spared, err := crdtsim.RunScale(cfg)
	if err != nil || spared.SpreadBytes >= whole.SpreadBytes || spared.ChangeBytes >= whole.ChangeBytes {
		t.Errorf("%+v with digests, %+v without, %v", spared, whole, err)
	}
}

// BenchmarkScale has 1,000 nodes learn 10,000 rows by pulls alone, and then one more write.
func BenchmarkScale(b *testing.B) {
	for _, digest := range []bool{false, true} {
		b.Run(map[bool]string{false: "whole log", true: "digest first"}[digest], func(b *testing.B) { benchScale(b, digest) })
	}
}

func benchScale(b *testing.B, digest bool) {
	var sum crdtsim.ScaleReport
	for i := 0; b.Loop(); i++ {
		r, err := crdtsim.RunScale(crdtsim.ScaleConfig{Seed: uint64(i), Digest: digest})
		if err != nil {
			b.Fatal(err)
		}
		sum.SpreadRounds += r.SpreadRounds
		sum.ChangeRounds += r.ChangeRounds
		sum.SpreadBytes += r.SpreadBytes
		sum.ChangeBytes += r.ChangeBytes
		sum.RowBytes = r.RowBytes
	}
	n := float64(b.N)
	b.ReportMetric(float64(sum.SpreadRounds)/n, "rounds")
	b.ReportMetric(sum.SpreadBytes/n, "bytes/node")
	b.ReportMetric(sum.SpreadBytes/n/float64(sum.RowBytes), "to-rows-ratio")
	b.ReportMetric(float64(sum.ChangeRounds)/n, "change-rounds")
	b.ReportMetric(sum.ChangeBytes/n, "change-bytes/node")
}
