package node

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"llmgw/mesh/catalog"
	"llmgw/ui"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

const wholeAccess = `version: 1
tenants:
  Acme:
    limits: {requests: 6000, parallel: 50}
    budgets:
      month/micros: {amount: 500000000, hard: true}
      day/tokens: {amount: 1000000}
  other: {}
projects:
  web: {tenant: ACME, limits: {tokens: 200000}}
  lone: {}
models:
  Tiny:
    source: {uri: "file:/tiny", digest: "sha256:aa", size_bytes: 5, format: sim}
prices:
  - {model: Tiny, micros: {input: 50000, output: 200000}}
  - {provider: cloud, micros: {image: 7}}
  - {model: big, provider: cloud, micros: {input: 0}}
routes:
  Fast:
    targets: [tiny, big@box]
    rule: balance
    default: {temperature: 0.5, stop: ["\n", "yes"], seed: 12345678901234567}
    force: {logit_bias: {"1": -1.0}, user: null}
    strip: [top_k]
`

func TestAccessIsAppliedOnceAndRestored(t *testing.T) {
	d := start(t, t.TempDir())
	key := d.newKey(t, ui.KeyRequest{Name: "app"})
	empty := d.export(t)
	dry := d.apply(t, ui.ApplyRequest{Document: wholeAccess, DryRun: true})
	want := []string{
		"create|tenant|acme||||limit requests 6000, limit parallel 50, budget day/tokens 1000000, budget month/micros 500000000 hard",
		"create|tenant|other||||", "create|project|lone||||", "create|project|web||||tenant acme, limit tokens 200000",
	}
	for i := range want {
		want[i] = strings.Replace(want[i], "||||", "|||", 1)
	}
	if diff := cmp.Diff(want, lines(dry)[:4]); diff != "" {
		t.Error(diff)
	}
	if after := d.export(t); after != empty {
		t.Errorf("a dry run wrote:\n%s", after)
	}
	if diff := cmp.Diff(lines(dry), lines(d.apply(t, ui.ApplyRequest{Document: wholeAccess}))); diff != "" {
		t.Errorf("the dry run said something else: %s", diff)
	}
	full := d.export(t)
	for name, document := range map[string]string{"the same": wholeAccess, "its export": full} {
		for _, prune := range []bool{false, true} {
			if again := d.apply(t, ui.ApplyRequest{Document: document, Prune: prune}); len(again.Changes) != 0 {
				t.Errorf("%s again (prune %v) changes %v", name, prune, lines(again))
			}
		}
	}
	if strings.Contains(full, key) || strings.Contains(full, "app") {
		t.Errorf("the export tells of API keys:\n%s", full)
	}
	other := start(t, t.TempDir())
	other.apply(t, ui.ApplyRequest{Document: full})
	if diff := cmp.Diff(full, other.export(t)); diff != "" {
		t.Errorf("restored elsewhere: %s", diff)
	}
	if p, ok := other.book.Price("tiny", ""); !ok || p.Micros[catalog.PriceOutput] != 200_000 {
		t.Errorf("a price is not in force: %+v", p)
	}
}

func TestAccessIsWrittenCellByCell(t *testing.T) {
	d := start(t, t.TempDir())
	d.apply(t, ui.ApplyRequest{Document: wholeAccess})
	r := d.apply(t, ui.ApplyRequest{Document: `version: 1
tenants: {acme: {limits: {requests: 9, parallel: null}, budgets: {month/micros: {amount: 7}}}}
projects: {WEB: {tenant: ""}}
prices: [{model: tiny, micros: {output: 3}}]
routes: {fast: {force: {seed: 1}, strip: [top_p]}}
`})
	want := []string{
		"change|tenant|acme|limit requests|6000|9", "change|tenant|acme|budget month/micros|500000000 hard|7 hard", "change|tenant|acme|limit parallel|50|",
		"change|project|web|tenant|acme|", "change|price|tiny|output|200000|3", "change|route|Fast|strip|top_k|top_k,top_p", "change|route|Fast|force seed||1",
	}
	if diff := cmp.Diff(want, lines(r)); diff != "" {
		t.Error(diff)
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], `"big"`) {
		t.Errorf("warnings %q", r.Warnings)
	}
	tenants, err := d.catalog.Tenants()
	if err != nil || tenants[0].Limits[catalog.MetricRequests] != 9 || len(tenants[0].Limits) != 1 || len(tenants[0].Budgets) != 2 {
		t.Errorf("got %+v, %v", tenants, err)
	}
	routes, err := d.catalog.Routes()
	if err != nil || len(routes[0].Targets) != 2 || string(routes[0].Params.Force["user"]) != "null" || string(routes[0].Params.Default["seed"]) != "12345678901234567" {
		t.Errorf("got %+v, %v", routes, err)
	}
}

func TestPruneOfAccess(t *testing.T) {
	d := start(t, t.TempDir())
	d.apply(t, ui.ApplyRequest{Document: wholeAccess})
	got := lines(d.apply(t, ui.ApplyRequest{Prune: true, Document: `version: 1
tenants: {other: {limits: {}}}
projects: {lone: {limits: {requests: 1}}}
prices: [{model: tiny, micros: {input: 1}}]
routes: {}
`}))
	want := []string{
		"change|project|lone|limit requests||1", "delete|project|web|||", "delete|tenant|acme|||", "change|price|tiny|input|50000|1",
		"change|price|tiny|output|200000|", "delete|price|all of cloud|||", "delete|price|big of cloud|||", "delete|route|Fast|||",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if prices, err := d.catalog.Prices(); err != nil || len(prices) != 1 || len(prices[0].Micros) != 1 {
		t.Errorf("prices %+v, %v", prices, err)
	}
	if got := lines(d.apply(t, ui.ApplyRequest{Prune: true, Document: "version: 1\nsettings: {}\n"})); len(got) != 0 {
		t.Errorf("sections that are not there were pruned: %v", got)
	}
}

func TestBadAccessIsRefusedWhole(t *testing.T) {
	d := start(t, t.TempDir())
	d.apply(t, ui.ApplyRequest{Document: wholeAccess})
	lone, web := "lone", "web"
	d.newKey(t, ui.KeyRequest{Name: "one", KeyChange: ui.KeyChange{Project: &lone}})
	d.newKey(t, ui.KeyRequest{Name: "two", KeyChange: ui.KeyChange{Project: &web}})
	before := d.export(t)
	good := "version: 1\nsettings: {log.level: error}\n"
	for name, tc := range map[string]struct {
		document, want string
		prune          bool
	}{
		"unknown metric":              {document: "tenants: {acme: {limits: {rpm: 1}}}\n", want: "limit rpm"},
		"limit below zero":            {document: "tenants: {acme: {limits: {requests: -1}}}\n", want: "line 3"},
		"unknown budget":              {document: "tenants: {acme: {budgets: {year/micros: {amount: 1}}}}\n", want: "budget year/micros"},
		"budget without a unit":       {document: "tenants: {acme: {budgets: {month: {amount: 1}}}}\n", want: "budget month/"},
		"new budget, no amount":       {document: "tenants: {other: {budgets: {month/micros: {hard: true}}}}\n", want: "has no amount"},
		"tenant of a tenant":          {document: "tenants: {acme: {tenant: other}}\n", want: "no other tenant"},
		"bad name":                    {document: "tenants: {'a b': {}}\n", want: `"a b"`},
		"one twice":                   {document: "tenants: {acme: {}, ACME: {}}\n", want: "without case"},
		"unknown tenant":              {document: "projects: {new: {tenant: nobody}}\n", want: `"nobody"`},
		"tenant that goes":            {document: "tenants: {other: {}}\n", prune: true, want: `project "web" counts for it`},
		"project with a key":          {document: "projects: {web: {}}\n", prune: true, want: `key "one" counts for it`},
		"tenant that goes, of a new":  {document: "tenants: {other: {}}\nprojects: {web: {tenant: other}, lone: {}, new: {tenant: acme}}\n", prune: true, want: `"acme"`},
		"price of nothing":            {document: "prices: [{micros: {input: 1}}]\n", want: "price of nothing"},
		"price without a kind":        {document: "prices: [{model: tiny}]\n", want: "no price was given"},
		"unknown kind":                {document: "prices: [{model: tiny, micros: {inputs: 1}}]\n", want: `"inputs"`},
		"price twice":                 {document: "prices: [{model: tiny, micros: {input: 1}}, {model: TINY, micros: {input: 2}}]\n", want: "twice"},
		"route without a target":      {document: "routes: {new: {rule: first}}\n", want: "names no model"},
		"unknown rule":                {document: "routes: {fast: {rule: best}}\n", want: `"best"`},
		"name of a model":             {document: "routes: {tiny: {targets: [big]}}\n", want: "Tiny has this name"},
		"name of a model that comes":  {document: "models: {fresh: {source: {uri: x, digest: y, format: sim}}}\nroutes: {fresh: {targets: [tiny]}}\n", want: "fresh has this name"},
		"alias that comes":            {document: "models: {tiny: {aliases: [wee]}}\nroutes: {wee: {targets: [tiny]}}\n", want: "Tiny has this name"},
		"a parameter that is its own": {document: "routes: {fast: {force: {messages: []}}}\n", want: "the client's to set"},
		"no JSON":                     {document: "routes: {fast: {force: {x: .inf}}}\n", want: "line 3"},
		"forced and taken out":        {document: "routes: {fast: {force: {top_k: 1}}}\n", want: "both forced"},
	} {
		_, err := d.client.Apply(t.Context(), ui.ApplyRequest{Document: good + tc.document, Prune: tc.prune})
		refused := (*ui.APIError)(nil)
		if !errors.As(err, &refused) || refused.Status != 400 || !strings.Contains(refused.Message, tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
	if after := d.export(t); after != before {
		t.Errorf("a refused document wrote: %s", cmp.Diff(before, after))
	}
}

// Whatever rules and routes are, their document makes others equal to them.
func TestADocumentRestoresAnyRulesAndRoute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Uint64Range(0, 9)
		rules := func(what string) (r catalog.Rules) {
			r.Limits = rapid.MapOf(rapid.SampledFrom(catalog.Metrics()), amount).Draw(t, what+" limits")
			for _, p := range catalog.Periods() {
				if rapid.Bool().Draw(t, what+" budget") {
					r.SetBudget(catalog.Budget{Period: p, Unit: catalog.UnitTokens, Amount: amount.Draw(t, "amount"), Hard: rapid.Bool().Draw(t, "hard")})
				}
			}
			return r
		}
		value := rapid.Custom(func(t *rapid.T) json.RawMessage {
			raw, err := json.Marshal(rapid.OneOf(
				rapid.Map(rapid.String(), func(s string) any { return s }), rapid.Map(rapid.Int(), func(n int) any { return n }),
				rapid.Map(rapid.Float64Range(-1e6, 1e6), func(f float64) any { return f }), rapid.Just[any](nil), rapid.Just[any](true),
				rapid.Map(rapid.SliceOfN(rapid.String(), 0, 2), func(s []string) any { return s }),
				rapid.Map(rapid.MapOfN(rapid.String(), rapid.Int(), 0, 2), func(m map[string]int) any { return m }),
			).Draw(t, "value"))
			if err != nil {
				t.Fatal(err)
			}
			return raw
		})
		params := rapid.MapOfN(rapid.StringMatching(`[a-z]{1,3}`), value, 0, 3)
		route := func(what string) catalog.Route {
			return catalog.Route{Name: "r", Targets: rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,3}`), 1, 2).Draw(t, what), Rule: catalog.RuleFirst,
				Params: catalog.Params{Default: params.Draw(t, what), Force: params.Draw(t, what), Strip: rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 0, 2, rapid.ID).Draw(t, what)}}
		}
		to, wanted := rules("to"), route("to")
		text, err := document{Version: 1, Tenants: map[string]groupDoc{"t": rulesDocOf(to)}, Routes: map[string]routeDoc{"r": routeDocOf(wanted)}}.text()
		if err != nil {
			t.Fatal(err)
		}
		read, err := parseDocument(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		got := rules("from")
		if err := read.Tenants["t"].apply(&got, true); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(to, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s\n%s", diff, text)
		}
		if diff := cmp.Diff(routeFields(read.Routes["r"].apply(catalog.Route{}, true)), routeFields(read.Routes["r"].apply(route("from"), true)), cmp.AllowUnexported(field{})); diff != "" {
			t.Fatalf("%s\n%s", diff, text)
		}
		same := read.Routes["r"].apply(wanted, true)
		for name, raw := range wanted.Params.Force {
			if string(same.Params.Force[name]) != string(raw) {
				t.Fatalf("%s became %s\n%s", raw, same.Params.Force[name], text)
			}
		}
	})
}
