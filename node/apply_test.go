package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"llmgw/crdt/store"
	"llmgw/mesh/catalog"
	"llmgw/ui"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func (d daemon) apply(t *testing.T, r ui.ApplyRequest) ui.ApplyResult {
	t.Helper()
	res, err := d.client.Apply(t.Context(), r)
	if err != nil {
		t.Fatalf("apply: %v\n%s", err, r.Document)
	}
	return res
}

func (d daemon) export(t *testing.T) string {
	t.Helper()
	doc, err := d.client.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return doc.Document
}

// lines are changes as short texts.
func lines(r ui.ApplyResult) []string {
	var out []string
	for _, c := range r.Changes {
		out = append(out, strings.Join([]string{c.Action, c.Kind, c.Name, c.Field, c.Before, c.After}, "|"))
	}
	return out
}

const wholeMesh = `version: 1
settings:
  log.level: debug
  discovery.auto_join: false
models:
  Tiny:
    source: {uri: "file:/tiny", digest: "sha256:aa", size_bytes: 5, format: sim}
    aliases: [small]
    state: stopped
    scale: {min: 0, max: 2, idle: 5m}
    pin: box
    limits: {context: 99}
    require: {zone: eu}
    profiles:
      default: {engine: sim, parallel: 3}
nodes:
  box:
    labels: {zone: eu}
    location: rack 3
    cordoned: true
    cordoned_devices: [GPU-1]
`

func TestApplyIsIdempotentAndExportRestores(t *testing.T) {
	d := start(t, t.TempDir())
	empty := d.export(t)
	dry := d.apply(t, ui.ApplyRequest{Document: wholeMesh, DryRun: true})
	if !dry.DryRun || len(dry.Changes) < 7 {
		t.Errorf("got %v", lines(dry))
	}
	if after := d.export(t); after != empty {
		t.Errorf("a dry run wrote:\n%s", after)
	}
	if diff := cmp.Diff(lines(dry), lines(d.apply(t, ui.ApplyRequest{Document: wholeMesh}))); diff != "" {
		t.Errorf("the dry run said something else: %s", diff)
	}
	for name, document := range map[string]string{"the same": wholeMesh, "its export": d.export(t)} {
		for _, prune := range []bool{false, true} {
			if again := d.apply(t, ui.ApplyRequest{Document: document, Prune: prune}); len(again.Changes) != 0 {
				t.Errorf("%s again (prune %v) changes %v", name, prune, lines(again))
			}
		}
	}
	m, err := d.catalog.Model("tiny")
	if err != nil || m.Pin != d.mesh.Self() || m.Labels.Require["zone"] != "eu" || m.Profiles[0].Parallel != 3 {
		t.Errorf("got %+v, %v", m, err)
	}
	full := d.export(t)

	other := start(t, t.TempDir())
	other.apply(t, ui.ApplyRequest{Document: full})
	if diff := cmp.Diff(full, other.export(t)); diff != "" {
		t.Errorf("restored elsewhere: %s", diff)
	}
}

func TestApplyWritesOnlyWhatIsGiven(t *testing.T) {
	d := start(t, t.TempDir())
	d.apply(t, ui.ApplyRequest{Document: wholeMesh})
	got := lines(d.apply(t, ui.ApplyRequest{Document: "version: 1\nmodels: {tiny: {state: served, aliases: [wee], scale: {min: 1}}}\nnodes: {BOX: {labels: {gpu: none}, cordoned: false}}\n"}))
	want := []string{
		"change|model|Tiny|state|stopped|served", "change|model|Tiny|scale.min|0|1", "change|model|Tiny|aliases|small|small,wee",
		"change|node|box|cordoned|true|false", "change|node|box|label gpu||none",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	m, err := d.catalog.Model("tiny")
	if err != nil || m.Scale.Max != 2 || m.Limits.Context != 99 || m.Pin == "" {
		t.Errorf("something that was not given changed: %+v, %v", m, err)
	}
}

func TestAnApplyThatIsCutShortSaysSo(t *testing.T) {
	full := fmt.Errorf("write: %w", store.ErrNoSpace)
	works, fails := func() error { return nil }, func() error { return full }
	for name, c := range map[string]struct {
		writes []func() error
		says   string
	}{
		"at once": {[]func() error{fails, works}, "0 of 2 changes were made"},
		"later":   {[]func() error{works, works, fails, works}, "2 of 4 changes were made"},
	} {
		e := (*ui.Error)(nil)
		err := (&plan{writes: c.writes}).make()
		if !errors.As(err, &e) || e.Kind != ui.NoSpace || !strings.Contains(e.Message, c.says) || !strings.Contains(e.Message, "free space") {
			t.Errorf("%s: %+v", name, err)
		}
	}
	if err := (&plan{writes: []func() error{works}}).make(); err != nil {
		t.Error(err)
	}
}

func TestPruneRemovesWhatIsNotNamed(t *testing.T) {
	d := start(t, t.TempDir())
	d.apply(t, ui.ApplyRequest{Document: wholeMesh})
	got := lines(d.apply(t, ui.ApplyRequest{Prune: true, Document: "version: 1\nsettings: {log.level: debug}\nmodels: {}\nnodes: {box: {labels: {}}}\n"}))
	want := []string{"delete|setting|discovery.auto_join||false|", "delete|model|Tiny|||", "change|node|box|label zone|eu|"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := lines(d.apply(t, ui.ApplyRequest{Prune: true, Document: "version: 1\nsettings: {}\n"})); len(got) != 1 {
		t.Errorf("sections that are not there were pruned: %v", got)
	}
}

func TestApplyRefusesTheWholeDocument(t *testing.T) {
	d := start(t, t.TempDir())
	d.apply(t, ui.ApplyRequest{Document: wholeMesh})
	before := d.export(t)
	good := "version: 1\nsettings: {log.level: error}\n"
	for name, tc := range map[string]struct{ document, want string }{
		"unknown field":         {good + "models:\n  tiny:\n    scale:\n      mni: 1\n", "line 6: field mni not found"},
		"unknown source field":  {good + "models:\n  tiny:\n    source:\n      uri: x\n      sha: y\n", "line 7: field sha not found"},
		"unknown section":       {good + "keys: []\n", "line 3: field keys not found"},
		"no YAML":               {"version: [", "line 1"},
		"nothing":               {"", "empty"},
		"no version":            {"models: {}\n", "version: 1"},
		"two documents":         {good + "---\nversion: 1\n", "more follows"},
		"unknown setting":       {"version: 1\nsettings: {log.level: error, api: ':1'}\n", "setting api"},
		"bad value":             {"version: 1\nsettings: {log.level: error, discovery.lan: maybe}\n", "neither true nor false"},
		"bad state":             {good + "models: {tiny: {state: asleep}}\n", `"asleep"`},
		"bad scale":             {good + "models: {tiny: {scale: {min: 3, max: 1}}}\n", "below scale.min"},
		"bad time":              {good + "models: {tiny: {scale: {idle: soon}}}\n", "line 3"},
		"bad label":             {good + "nodes: {box: {labels: {'a b': c}}}\n", "label"},
		"unknown node":          {good + "nodes: {cellar: {location: x}}\n", `"cellar"`},
		"unknown pin":           {good + "models: {tiny: {pin: cellar}}\n", `"cellar"`},
		"unknown engine":        {good + "models: {tiny: {profiles: {default: {engine: steam}}}}\n", `"steam"`},
		"engine of other files": {good + "models: {tiny: {profiles: {default: {engine: llamacpp}}}}\n", "does not read"},
		"new model, no digest":  {good + "models: {fresh: {source: 'file:/x'}}\n", "llmgw pull"},
		"other source":          {good + "models: {tiny: {source: 'file:/other'}}\n", "digest"},
		"one model twice":       {good + "models: {tiny: {state: served}, TINY: {state: stopped}}\n", "without case"},
		"bad name":              {good + "models: {'a@b': {source: {uri: x, digest: y, format: sim}}}\n", "'@'"},
	} {
		_, err := d.client.Apply(t.Context(), ui.ApplyRequest{Document: tc.document})
		refused := (*ui.APIError)(nil)
		if !errors.As(err, &refused) || refused.Status != 400 || !strings.Contains(refused.Message, tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
	if after := d.export(t); after != before {
		t.Errorf("a refused document wrote: %s", cmp.Diff(before, after))
	}
}

func TestApplyTakesWhatIsSaidOfABoxThatIsYetToJoin(t *testing.T) {
	d := start(t, t.TempDir())
	away := "12D3KooWQYhTNQdmr3ArTeUHRYzFg94BKyTkoWBDWez9kSCVe2Xo"
	r := d.apply(t, ui.ApplyRequest{Document: "version: 1\nnodes: {" + away + ": {labels: {zone: eu}}}\n"})
	if len(r.Changes) != 1 || len(r.Warnings) != 1 {
		t.Errorf("got %+v", r)
	}
	if !strings.Contains(d.export(t), away) {
		t.Error("it is not kept")
	}
}

// Whatever a model is, its document makes a model of the same name equal to it.
func TestADocumentRestoresAnyModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z]{0,4}`)
		number := rapid.IntRange(0, 9)
		draw := func(what string) catalog.Model {
			m := catalog.Model{Name: "m", State: rapid.SampledFrom([]catalog.ModelState{catalog.ModelServed, catalog.ModelStopped}).Draw(t, what),
				Source: catalog.Source{URI: text.Draw(t, "uri"), Digest: "sha256:" + text.Draw(t, "digest"), Format: catalog.FormatSim, SizeBytes: int64(number.Draw(t, "size"))},
				Limits: catalog.Limits{Context: number.Draw(t, "context")}, Scale: catalog.Scale{Min: number.Draw(t, "min"), Max: number.Draw(t, "max")}}
			for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"p", "q", "r"}), 0, 3, rapid.ID).Draw(t, "profiles") {
				m.Profiles = append(m.Profiles, catalog.Profile{ID: id, Engine: text.Draw(t, "engine"), Args: rapid.SliceOfN(text, 0, 2).Draw(t, "args"), Embeddings: rapid.Bool().Draw(t, "e")})
			}
			m.Aliases = rapid.SliceOfNDistinct(text, 0, 2, rapid.ID).Draw(t, "aliases")
			slices.Sort(m.Aliases)
			m.Labels.Require = rapid.MapOfN(text, text, 0, 2).Draw(t, "require")
			return m
		}
		from, to := draw("from"), draw("to")
		full := document{Version: 1, Models: map[string]modelDoc{"m": docOf(to, func(id string) string { return id })}}
		yaml, err := full.text()
		if err != nil {
			t.Fatal(err)
		}
		read, err := parseDocument(yaml)
		if err != nil {
			t.Fatalf("%v\n%s", err, yaml)
		}
		got := copyModel(from)
		read.Models["m"].apply(&got, "", true)
		yamlAgain, err := document{Version: 1, Models: map[string]modelDoc{"m": docOf(got, func(id string) string { return id })}}.text()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(yaml, yamlAgain); diff != "" {
			t.Fatalf("%s", diff)
		}
	})
}

func FuzzParseDocument(f *testing.F) {
	f.Add(wholeMesh)
	f.Add("version: 1\nsettings: {a: [b, c]}\n")
	f.Add(wholeAccess)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseDocument(text)
		if err != nil {
			return
		}
		if again, err := d.text(); err == nil {
			if _, err := parseDocument(again); err != nil {
				t.Errorf("what was written cannot be read: %v\n%s", err, again)
			}
		}
	})
}

// TestWeightAndPriorityReachThePickWithoutANewProcess: they concern who is asked, and a
// process that works is left alone.
func TestWeightAndPriorityReachThePickWithoutANewProcess(t *testing.T) {
	d := start(t, t.TempDir())
	d.serve(t, "tiny")
	pid := d.supervisor.Status()[0].PID
	apply := func(text string) error {
		_, err := d.client.Apply(t.Context(), ui.ApplyRequest{Document: "version: 1\nmodels: {tiny: {profiles: {default: " + text + "}}}\n"})
		return err
	}
	if err := apply("{priority: -3, weight: 2.5}"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pick has them", func() bool {
		m, ok := routes{d.Node}.Resolve("tiny")
		return ok && len(m.Replicas) == 1 && m.Replicas[0].Weight == 2.5 && m.Replicas[0].Priority == -3
	})
	if doc := d.export(t); !strings.Contains(doc, "weight: 2.5") || !strings.Contains(doc, "priority: -3") {
		t.Errorf("the export lacks them:\n%s", doc)
	}
	if now := d.supervisor.Status(); len(now) != 1 || now[0].PID != pid || now[0].State != catalog.ReplicaReady {
		t.Errorf("the engine was started anew: %+v, before %d", now, pid)
	}
	for _, bad := range []string{"{weight: -1}", "{weight: 101}", "{weight: .nan}", "{weight: 0.001}"} {
		if err := apply(bad); err == nil || !strings.Contains(err.Error(), "weight") || !strings.Contains(err.Error(), "0.01 to 100") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
