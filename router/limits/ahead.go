package limits

import (
	"time"

	"llmgw/crdt"
	"llmgw/mesh/catalog"
)

// Due is an account of a hard budget, and how much it is to hold.
type Due struct {
	Account crdt.Account
	Amount  uint64
}

// aheadOf is how long before a period begins its rights are divided: who divides them may
// be away for that long and nobody notices.
func aheadOf(p catalog.Period) time.Duration {
	if p == catalog.PeriodMonth {
		return 3 * 24 * time.Hour
	}
	return 6 * time.Hour
}

// Ahead lists the hard budgets of a key, project or tenant of which another period begins
// soon after t.
func Ahead(level, id string, rules catalog.Rules, t time.Time) []Due {
	var out []Due
	for _, b := range rules.Budgets {
		left := untilNext(b.Period, t)
		if !b.Hard || b.Amount == 0 || left == 0 || left > aheadOf(b.Period) {
			continue
		}
		out = append(out, Due{AccountOf(level, id, b.Unit, b.Period, t.Add(left+time.Minute)), min(b.Amount, crdt.MaxAmount)})
	}
	return out
}
