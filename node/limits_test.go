package node

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"llmgw/ui"
)

// newKey makes a key and gives its text.
func (d daemon) newKey(t *testing.T, r ui.KeyRequest) string {
	t.Helper()
	made, err := d.client.NewKey(t.Context(), r)
	if err != nil {
		t.Fatalf("make key %s: %v", r.Name, err)
	}
	return made.Key
}

func (d daemon) chat(t *testing.T, key, model string) (int, string) {
	t.Helper()
	return d.ask(t, key, "POST", "/v1/chat/completions", `{"model":"`+model+`","messages":[{"role":"user","content":"hello there"}]}`)
}

func limit(metric string, n uint64) ui.RulesChange {
	return ui.RulesChange{Limits: []ui.LimitChange{{Metric: metric, Value: &n}}}
}

func TestLimitsOfEachLevelAreInForceAtOnce(t *testing.T) {
	d := start(t, t.TempDir())
	d.serve(t, "tiny")
	ctx := t.Context()
	if _, err := d.client.NewTenant(ctx, ui.TenantRequest{Name: "Acme", RulesChange: limit("requests", 3)}); err != nil {
		t.Fatal(err)
	}
	acme, web := "acme", "web"
	if _, err := d.client.NewProject(ctx, ui.ProjectRequest{Name: web, Tenant: &acme}); err != nil {
		t.Fatal(err)
	}
	one := d.newKey(t, ui.KeyRequest{Name: "one", KeyChange: ui.KeyChange{Project: &web}})
	two := d.newKey(t, ui.KeyRequest{Name: "two", KeyChange: ui.KeyChange{Project: &web, RulesChange: limit("requests", 1)}})
	free := d.newKey(t, ui.KeyRequest{Name: "free"})
	for i, step := range []struct {
		key  string
		code int
		says string
	}{
		{two, 200, ""}, {two, 429, `key \"two\"`}, {one, 200, ""}, {one, 200, ""}, {one, 429, `tenant \"acme\"`}, {free, 200, ""},
	} {
		code, body := d.chat(t, step.key, "tiny")
		if code != step.code || !strings.Contains(body, step.says) {
			t.Fatalf("request %d: %d %s; want %d that says %q", i+1, code, body, step.code, step.says)
		}
	}
	if _, err := d.client.SetTenant(ctx, ui.TenantRequest{Name: "acme", RulesChange: limit("requests", 100)}); err != nil {
		t.Fatal(err)
	}
	if code, body := d.chat(t, one, "tiny"); code != 200 {
		t.Errorf("after the limit was raised: %d %s", code, body)
	}
	d.end(t, one, "one")
	d.removal(t)
}

// end revokes a key: the next request is refused.
func (d daemon) end(t *testing.T, key, name string) {
	t.Helper()
	if err := d.client.RevokeKey(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if code, body := d.chat(t, key, "tiny"); code != http.StatusUnauthorized {
		t.Errorf("revoked: %d %s", code, body)
	}
}

// removal goes from the bottom up alone.
func (d daemon) removal(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	if _, err := d.client.RemoveTenant(ctx, ui.Named{Name: "acme"}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a tenant with a project was removed: %v", err)
	}
	if _, err := d.client.RemoveProject(ctx, ui.Named{Name: "web"}); err == nil || !strings.Contains(err.Error(), `"two"`) {
		t.Errorf("a project with a key was removed: %v", err)
	}
	if err := d.client.RevokeKey(ctx, "two"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.client.RemoveProject(ctx, ui.Named{Name: "web"}); err != nil {
		t.Error(err)
	}
	if _, err := d.client.RemoveTenant(ctx, ui.Named{Name: "acme"}); err != nil {
		t.Error(err)
	}
}

func TestBudgetsAndUsageOutliveTheDaemon(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir)
	d.serve(t, "tiny")
	ctx := t.Context()
	if _, err := d.client.SetPrice(ctx, ui.Price{Model: "tiny", Micros: []ui.Micro{{Kind: "input", Value: 1_000_000}, {Kind: "output", Value: 5_000_000}}}); err != nil {
		t.Fatal(err)
	}
	key := d.newKey(t, ui.KeyRequest{Name: "app"})
	for range 3 {
		if code, body := d.chat(t, key, "tiny"); code != 200 {
			t.Fatalf("%d %s", code, body)
		}
	}
	used := func(d daemon) (row ui.UsageRow) {
		eventually(t, "three requests on record", func() bool {
			r, err := d.client.Usage(ctx, ui.UsageRequest{By: "key"})
			if err != nil {
				t.Fatal(err)
			}
			for _, row = range r.Rows {
				if row.Name == "app" && row.Requests == 3 {
					return true
				}
			}
			return false
		})
		return row
	}
	before := used(d)
	if before.Micros == 0 || before.InputTokens == 0 || before.OutputTokens == 0 || before.Micros != before.InputTokens+5*before.OutputTokens {
		t.Errorf("usage %+v", before)
	}
	d.stop()

	d = start(t, dir)
	if after := used(d); after != before {
		t.Errorf("after a restart: %+v, before: %+v", after, before)
	}
	eventually(t, "tiny is served again", func() bool { return d.serving("tiny") })
	amount := before.Micros
	answer, err := d.client.SetKey(ctx, ui.KeySettings{Key: "app", KeyChange: ui.KeyChange{RulesChange: ui.RulesChange{
		Budgets: []ui.BudgetChange{{Period: "month", Unit: "micros", Amount: &amount}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if b := answer.Key.Budgets; len(b) != 1 || b[0].Spent != amount {
		t.Errorf("budgets %+v, want one of which %d is spent", b, amount)
	}
	if code, body := d.chat(t, key, "tiny"); code != 429 || !strings.Contains(body, "insufficient_quota") {
		t.Errorf("with a spent budget: %d %s", code, body)
	}
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	d := start(t, t.TempDir())
	ctx := t.Context()
	gone, minus := "gone", int64(-1)
	list := func(texts ...string) *ui.List[string] { l := ui.List[string](texts); return &l }
	for name, call := range map[string]func() error{
		"a project that is none": func() error {
			_, err := d.client.NewKey(ctx, ui.KeyRequest{Name: "k", KeyChange: ui.KeyChange{Project: &gone}})
			return err
		},
		"a tenant that is none": func() error {
			_, err := d.client.NewProject(ctx, ui.ProjectRequest{Name: "p", Tenant: &gone})
			return err
		},
		"a metric that is none": func() error {
			_, err := d.client.NewTenant(ctx, ui.TenantRequest{Name: "t", RulesChange: limit("speed", 1)})
			return err
		},
		"a limit beyond counts": func() error {
			_, err := d.client.NewTenant(ctx, ui.TenantRequest{Name: "t", RulesChange: limit("tokens", 1<<60)})
			return err
		},
		"a name that is none": func() error { _, err := d.client.NewTenant(ctx, ui.TenantRequest{Name: "a b"}); return err },
		"a pattern that is none": func() error {
			_, err := d.client.NewKey(ctx, ui.KeyRequest{Name: "k", KeyChange: ui.KeyChange{Models: list("a b")}})
			return err
		},
		"a label that is none": func() error {
			_, err := d.client.NewKey(ctx, ui.KeyRequest{Name: "k", KeyChange: ui.KeyChange{Require: list("zone")}})
			return err
		},
		"an end before now": func() error {
			_, err := d.client.NewKey(ctx, ui.KeyRequest{Name: "k", KeyChange: ui.KeyChange{ExpiresSeconds: &minus}})
			return err
		},
		"a price of nothing": func() error { _, err := d.client.SetPrice(ctx, ui.Price{Model: "m"}); return err },
		"a price for nobody": func() error {
			_, err := d.client.SetPrice(ctx, ui.Price{Micros: []ui.Micro{{Kind: "input", Value: 1}}})
			return err
		},
		"a price that is none": func() error {
			_, err := d.client.SetPrice(ctx, ui.Price{Model: "m", Micros: []ui.Micro{{Kind: "air", Value: 1}}})
			return err
		},
		"usage by nothing": func() error { _, err := d.client.Usage(ctx, ui.UsageRequest{By: "weather"}); return err },
	} {
		if err := call(); exitKind(err) != http.StatusBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := d.client.Keys(ctx); err != nil || len(list.Keys) != 1 {
		t.Errorf("keys %+v, %v; only the first one was made", list, err)
	}
}

// exitKind is the HTTP status of a refusal.
func exitKind(err error) int {
	api := (*ui.APIError)(nil)
	if !errors.As(err, &api) {
		return 0
	}
	return api.Status
}
