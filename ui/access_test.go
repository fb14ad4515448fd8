package ui

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
)

func (b *fakeBackend) SetKey(_ context.Context, r KeySettings) (KeyAnswer, error) {
	return KeyAnswer{Key: Key{ID: "k1", Name: r.Key}}, b.note(r)
}

func (b *fakeBackend) Tenants(context.Context) ([]Tenant, error) { return nil, b.err }

func (b *fakeBackend) NewTenant(_ context.Context, r TenantRequest) (TenantAnswer, error) {
	return TenantAnswer{Tenant: Tenant{Name: r.Name}}, b.note(r)
}

func (b *fakeBackend) SetTenant(ctx context.Context, r TenantRequest) (TenantAnswer, error) {
	return b.NewTenant(ctx, r)
}

func (b *fakeBackend) RemoveTenant(_ context.Context, r Named) (Named, error) { return r, b.note(r) }

func (b *fakeBackend) Projects(context.Context) ([]Project, error) { return nil, b.err }

func (b *fakeBackend) NewProject(_ context.Context, r ProjectRequest) (ProjectAnswer, error) {
	return ProjectAnswer{Project: Project{Name: r.Name}}, b.note(r)
}

func (b *fakeBackend) SetProject(ctx context.Context, r ProjectRequest) (ProjectAnswer, error) {
	return b.NewProject(ctx, r)
}

func (b *fakeBackend) RemoveProject(_ context.Context, r Named) (Named, error) { return r, b.note(r) }

func (b *fakeBackend) Prices(context.Context) ([]Price, error) { return nil, b.err }

func (b *fakeBackend) SetPrice(_ context.Context, r Price) (PriceAnswer, error) {
	return PriceAnswer{Price: r}, b.note(r)
}

func (b *fakeBackend) RemovePrice(ctx context.Context, r Price) (PriceAnswer, error) {
	return b.SetPrice(ctx, r)
}

func (b *fakeBackend) Usage(_ context.Context, r UsageRequest) (UsageReport, error) {
	return UsageReport{By: r.By, Rows: []UsageRow{{Requests: uint64(r.SinceSeconds)}}}, b.err // a read: nothing to note
}

func TestUsageReadsItsQuery(t *testing.T) {
	for name, c := range map[string]struct {
		query string
		want  UsageRequest
		code  int
	}{
		"nothing asked":        {"", UsageRequest{By: "key"}, 200},
		"by model, since":      {"?by=model&since=60", UsageRequest{"model", 60}, 200},
		"since is no number":   {"?since=soon", UsageRequest{}, 400},
		"since is below zero":  {"?since=-1", UsageRequest{}, 400},
		"since is out of time": {"?since=99999999999999", UsageRequest{}, 400},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			r, err := http.NewRequest("GET", "http://192.0.2.7:8770/admin/v1/usage"+c.query, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.AddCookie(f.login(t))
			w := f.ask(r)
			if w.Code != c.code {
				t.Fatalf("status %d, want %d: %s", w.Code, c.code, w.Body)
			}
			if c.code != 200 {
				return
			}
			var got UsageReport
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if got.By != c.want.By || got.Rows[0].Requests != uint64(c.want.SinceSeconds) {
				t.Errorf("asked for %+v, want %+v", got, c.want)
			}
		})
	}
}
