package node

import (
	"testing"

	"llmgw/mesh/catalog"
	"llmgw/router/limits"
	"llmgw/ui"
)

// taken is how many requests of a key a box counts.
func (d daemon) taken(key string) uint64 {
	return d.limits.Taken(limits.LevelKey, key, catalog.MetricRequests)
}

func TestTwoBoxesCountAsOne(t *testing.T) {
	a, b := pair(t)
	a.serve(t, "tiny")
	eventually(t, "the other box knows the model", func() bool { m, _ := b.model(t, "tiny"); return m.Loaded })
	eventually(t, "each counts two heads", func() bool { return len(a.heads()) == 2 && len(b.heads()) == 2 })
	for _, policy := range []limits.Policy{limits.Owner, limits.Share} {
		a.set(t, "router.limit_policy", string(policy))
		eventually(t, "both follow "+string(policy), func() bool { return a.limitPolicy() == policy && b.limitPolicy() == policy })
		countTogether(t, a, b, string(policy))
	}
	eventually(t, "usage of both boxes is summed up", func() bool {
		one, err := a.client.Usage(t.Context(), ui.UsageRequest{By: "key"})
		other, otherErr := b.client.Usage(t.Context(), ui.UsageRequest{By: "key"})
		return err == nil && otherErr == nil && len(one.Missing)+len(other.Missing) == 0 && len(one.Rows) == 2 && len(other.Rows) == 2 &&
			one.Rows[0] == other.Rows[0] && one.Rows[1] == other.Rows[1]
	})
	b.stop()
	eventually(t, "a box that does not answer is named", func() bool {
		r, err := a.client.Usage(t.Context(), ui.UsageRequest{By: "node"})
		return err == nil && len(r.Missing) == 1
	})
}

// countTogether asks both boxes by turns with one key, and has each request be known to
// the other box before the next.
func countTogether(t *testing.T, a, b daemon, name string) {
	t.Helper()
	const most = 8
	made, err := a.client.NewKey(t.Context(), ui.KeyRequest{Name: name, KeyChange: ui.KeyChange{RulesChange: limit("requests", most)}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other box knows the key", func() bool { code, _ := b.ask(t, made.Key, "GET", "/v1/models", ""); return code == 200 })
	began, admitted := a.meshTime.now(), 0
	for i := range 3 * most {
		code, body := []daemon{a, b}[i%2].chat(t, made.Key, "tiny")
		switch code {
		case 200:
			admitted++
			eventually(t, "both count the request", func() bool { return a.taken(made.ID) > 0 && a.taken(made.ID) == b.taken(made.ID) })
		case 429:
		default:
			t.Fatalf("%s: %d %s", name, code, body)
		}
	}
	// In a minute that goes by some more are let through.
	bound := most + int(a.meshTime.now().Sub(began).Minutes()*most) + 1
	if admitted < most/2 || admitted > bound {
		t.Errorf("%s: admitted %d, want %d to %d", name, admitted, most/2, bound)
	}
}

func TestABoxThatComesBackKnowsWhatWasCounted(t *testing.T) {
	a, b := pair(t)
	a.serve(t, "tiny")
	made, err := a.client.NewKey(t.Context(), ui.KeyRequest{Name: "app", KeyChange: ui.KeyChange{RulesChange: limit("requests", 100)}})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if code, body := a.chat(t, made.Key, "tiny"); code != 200 {
			t.Fatalf("%d %s", code, body)
		}
	}
	dir := b.cfg.StateDir
	b.stop()
	b = start(t, dir)
	eventually(t, "the count of the last minute is there", func() bool { return b.taken(made.ID) > 0 && b.taken(made.ID) == a.taken(made.ID) })
}
