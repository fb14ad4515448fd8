package limits

import (
	"fmt"
	"testing"

	"llmgw/crdt"
	"llmgw/mesh/catalog"
)

// BenchmarkAdmit is what limits and budgets add to a request, in a mesh whose heads all
// count: a key without any, one with a few, and all at each of three levels.
func BenchmarkAdmit(b *testing.B) {
	few := catalog.Rules{Limits: catalog.RateLimits{catalog.MetricRequests: 1 << 40, catalog.MetricTokens: 1 << 46}}
	full := catalog.Rules{Limits: few.Limits}
	full.SetBudget(catalog.Budget{Period: catalog.PeriodMonth, Unit: catalog.UnitTokens, Amount: 1 << 47})
	for name, rules := range map[string][3]catalog.Rules{"none": {}, "key": {few}, "three levels": {full, full, full}} {
		for _, heads := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/%d heads", name, heads), func(b *testing.B) {
				h := newBench(func(c *Config) { c.Ledger = noLedger{} })
				k := h.keyOf(rules[0], rules[1], rules[2])
				for i := range heads - 1 {
					peer := peerName(i)
					other := newBench(func(c *Config) { c.Self, c.Peer = crdt.Incarnation{Replica: crdt.ReplicaID(i + 2), Boot: 1}, peer })
					other.keyOf(rules[0], rules[1], rules[2])
					if _, err := other.admit(k, 10, 10); err != nil {
						b.Fatal(err)
					}
					other.Tick(other.now())
					h.heads = append(h.heads, Head{Peer: peer})
					for _, msg := range other.told {
						h.TakeSignal(peer, msg)
					}
				}
				h.Tick(h.now())
				b.ReportAllocs()
				for b.Loop() {
					g, err := h.admit(k, 100, 100)
					if err != nil {
						b.Fatal(err)
					}
					g.Settle(used(90, 50))
				}
				h.Close()
			})
		}
	}
}
