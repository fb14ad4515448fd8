package limits

import (
	"errors"
	"log/slog"
	"testing"

	"llmgw/crdt/store"
	"llmgw/mesh/catalog"
)

type flakyDocs struct {
	fail  bool
	limit uint64
	watch *store.Watch
}

func (d *flakyDocs) Tenants() ([]catalog.Tenant, error) {
	if d.fail {
		return nil, errors.New("disk busy")
	}
	return []catalog.Tenant{{ID: "t", Rules: catalog.Rules{Limits: catalog.RateLimits{catalog.MetricRequests: d.limit}}}}, nil
}
func (d *flakyDocs) Projects() ([]catalog.Project, error) { return nil, nil }
func (d *flakyDocs) Prices() ([]catalog.Price, error)     { return nil, nil }
func (d *flakyDocs) Watch(...string) *store.Watch         { return d.watch }

// documents that could not be read once are read again.
func TestBookReadsAgain(t *testing.T) {
	c := make(chan struct{}, 1)
	d := &flakyDocs{limit: 100, watch: &store.Watch{C: c}}
	b := NewBook(d, slog.New(slog.DiscardHandler))
	b.Tenant("t")
	d.limit, d.fail = 1, true // an admin lowers a limit; the read right after it fails once
	c <- struct{}{}
	b.Tenant("t")
	d.fail = false
	if got, _ := b.Tenant("t"); got.Limits[catalog.MetricRequests] != 1 {
		t.Errorf("the limit of before holds for good: %d", got.Limits[catalog.MetricRequests])
	}
}
