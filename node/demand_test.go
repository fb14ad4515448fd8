package node

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/mesh/placement"
	"llmgw/ui"
)

// pull gets a simulated model that serves so many requests at once.
func (d daemon) pull(t *testing.T, name string) {
	t.Helper()
	if _, err := d.client.Pull(t.Context(), ui.PullRequest{Source: simFile(t, `{"llmgw_sim":1,"tokens":3}`), As: name}, nil); err != nil {
		t.Fatal(err)
	}
}

func (d daemon) scale(t *testing.T, r ui.ModelRequest) {
	t.Helper()
	if _, err := d.client.SetModel(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func number[T any](v T) *T { return &v }

// serving says whether a replica of the model is ready here.
func (d daemon) serving(model string) bool {
	for _, r := range d.supervisor.Status() {
		if r.Model == model && r.State == catalog.ReplicaReady {
			return true
		}
	}
	return false
}

func TestAModelThatIsWantedIsLoadedAndGoesWhenIdle(t *testing.T) {
	d := start(t, t.TempDir())
	d.pull(t, "tiny")
	_, err := d.client.Load(t.Context(), ui.LoadRequest{Model: "tiny", OnDemand: true})
	refused := (*ui.APIError)(nil)
	if !errors.As(err, &refused) || refused.Code != "not_on_demand" || !strings.Contains(refused.Hint, "llmgw scale tiny --max 1") {
		t.Errorf("without scale.max: %v", err)
	}
	d.scale(t, ui.ModelRequest{Model: "tiny", Max: number(1)})
	res, err := d.client.Load(t.Context(), ui.LoadRequest{Model: "tiny", OnDemand: true})
	if err != nil || res.NodeName != "box" || !strings.Contains(res.Reason, "requests ask for it") {
		t.Fatalf("got %+v, %v", res, err)
	}
	eventually(t, "it is loaded", func() bool { return d.serving("tiny") })
	why, err := d.client.Why(t.Context(), ui.WhyRequest{Model: "tiny"})
	if err != nil || len(why.Slots) != 1 || !why.Slots[0].Demand {
		t.Errorf("why says %+v, %v", why, err)
	}
	eventually(t, "the want has ended", func() bool { return len(d.view.Load().own.Wants) == 0 })
	if !d.serving("tiny") {
		t.Error("it went with the want")
	}
	d.scale(t, ui.ModelRequest{Model: "tiny", IdleSeconds: number(int64(1))})
	eventually(t, "it is unloaded for being idle", func() bool { return len(d.supervisor.Status()) == 0 })
	for _, a := range d.view.Load().assignments {
		if a.Owner != "" || !strings.Contains(a.Reason, "scale.idle") {
			t.Errorf("got %+v", a)
		}
	}
}

func TestUnloadEndsWhatRequestsAskedFor(t *testing.T) {
	d := start(t, t.TempDir())
	d.pull(t, "tiny")
	d.scale(t, ui.ModelRequest{Model: "tiny", Max: number(1)})
	eventually(t, "the box decides", d.settled.Load)
	release, err := d.Want("TINY")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is known to be loaded", func() bool { m, _ := d.model(t, "tiny"); return m.Loaded })
	if _, err := d.Want("tiny"); err == nil {
		t.Error("more was wanted than scale.max")
	}
	release()
	release() // a second time does nothing
	if _, err := d.client.Unload(t.Context(), ui.UnloadRequest{Model: "tiny"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is unloaded", func() bool { return len(d.supervisor.Status()) == 0 })
	if _, err := d.Want("nosuch"); err == nil {
		t.Error("an unknown model was wanted")
	}
	stopped := "stopped"
	d.scale(t, ui.ModelRequest{Model: "tiny", State: &stopped})
	if _, err := d.Want("tiny"); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("a stopped model: %v", err)
	}
}

func TestWantsAreCountedAndToldOnce(t *testing.T) {
	var w wants
	at := time.Unix(100, 0)
	first, second := w.hold(wanted{"m", 7}, 1, at), w.hold(wanted{"m", 7}, 2, at.Add(time.Hour))
	if got := w.list(nil, at); len(got) != 1 || got[0] != (catalog.Want{Model: "m", Replicas: 2, Since: 100, After: 7}) {
		t.Errorf("got %+v", got)
	}
	first()
	first()
	if len(w.list(nil, at)) != 1 {
		t.Error("a want ended while a request waits")
	}
	unloaded := []catalog.Model{{ID: "m", Unloaded: 8}}
	if got := w.list(unloaded, at); len(got) != 0 || !w.outlived(unloaded)["m"] {
		t.Errorf("after an unload %+v is told", got)
	}
	third := w.hold(wanted{"m", 8}, 1, at)
	if got := w.list(unloaded, at); len(got) != 1 || got[0].After != 8 || len(w.list(nil, at)) != 2 {
		t.Errorf("of requests before and after an unload %+v is told", got)
	}
	third()
	second()
	if len(w.list(nil, at)) != 0 || len(w.outlived(unloaded)) != 0 {
		t.Error("a want stayed after the last request")
	}
	ended := 0
	w.holdOnce(oneWant{wanted: wanted{model: "m"}, until: at, release: func() { ended++ }})
	if w.end(func(oneWant) bool { return false }) || !w.end(func(o oneWant) bool { return o.model == "m" }) || ended != 1 || len(w.once) != 0 {
		t.Errorf("ended %d times, left %v", ended, w.once)
	}
}

func TestAliasesOfTwoModelsAreReported(t *testing.T) {
	models := []catalog.Model{{ID: "a", Name: "A", Aliases: []string{"chat"}}, {ID: "b", Name: "B", Aliases: []string{"Chat", "a", "own"}}}
	got := aliasProblems(models)
	if len(got) != 2 || !strings.Contains(got[0].Text, `"Chat" is an alias of B and means A too`) || !strings.Contains(got[1].Text, `"a" is an alias of B`) {
		t.Errorf("got %+v", got)
	}
}

func TestIdleIsCountedFromTheLastRequest(t *testing.T) {
	models := []catalog.Model{{ID: "m", Name: "m", Scale: catalog.Scale{Max: 1, Idle: time.Minute}}, {ID: "n", Name: "n"}}
	at := time.Unix(1000, 0)
	var u usage
	tell := func(after time.Duration, inFlight int, state catalog.ReplicaState) catalog.ReplicaStatus {
		rs := []catalog.ReplicaStatus{{Model: "m", State: state, InFlight: inFlight}, {Model: "n", State: catalog.ReplicaReady}}
		u.tell(rs, models, at.Add(after))
		if rs[1].Idle {
			t.Error("a model without scale.idle is idle")
		}
		return rs[0]
	}
	if r := tell(0, 0, catalog.ReplicaLoading); r.Used != 0 || r.Idle {
		t.Errorf("while it loads: %+v", r)
	}
	if r := tell(time.Minute, 0, catalog.ReplicaReady); r.Idle || r.Used != 1060 {
		t.Errorf("just ready: %+v", r)
	}
	if r := tell(2*time.Minute, 0, catalog.ReplicaReady); !r.Idle {
		t.Errorf("a minute later: %+v", r)
	}
	u.touch(catalog.AssignmentID{Model: "m"}, at.Add(2*time.Minute))
	if r := tell(150*time.Second, 0, catalog.ReplicaReady); r.Idle {
		t.Errorf("after a request: %+v", r)
	}
	if r := tell(time.Hour, 1, catalog.ReplicaReady); r.Idle {
		t.Errorf("during a request: %+v", r)
	}
	if r := tell(time.Hour+30*time.Second, 0, catalog.ReplicaReady); r.Idle {
		t.Errorf("after a long request: %+v", r)
	}
}

func TestASlotRunsOnItsDevice(t *testing.T) {
	inventory := catalog.Inventory{Devices: []catalog.Device{{ID: "GPU-1"}, {ID: "cpu", Kind: catalog.DeviceCPU}}}
	for id, want := range map[string]string{"": "cpu", "GPU-1": "GPU-1"} {
		if got, err := device(inventory, id); err != nil || len(got) != 1 || got[0].ID != want {
			t.Errorf("%q: %v, %v", id, got, err)
		}
	}
	if _, err := device(inventory, "GPU-2"); err == nil || !strings.Contains(err.Error(), "GPU-2") {
		t.Errorf("a device that went: %v", err)
	}
}

func TestCordonOfADevice(t *testing.T) {
	d := start(t, t.TempDir())
	d.pull(t, "tiny")
	cordon := func(on bool, devices ...string) (ui.NodeResult, error) {
		return d.client.SetNode(t.Context(), ui.NodeRequest{Node: "box", Cordoned: &on, Devices: devices})
	}
	_, err := cordon(true, "GPU-9")
	refused := (*ui.APIError)(nil)
	if !errors.As(err, &refused) || refused.Status != http.StatusNotFound || !strings.Contains(refused.Hint, "cpu") {
		t.Errorf("a device that is not there: %v", err)
	}
	if r, err := cordon(true, "cpu"); err != nil || r.Node.Cordoned || len(r.Node.CordonedDevices) != 1 {
		t.Fatalf("got %+v, %v", r.Node, err)
	}
	eventually(t, "the box decides", d.settled.Load)
	if r, err := d.client.Load(t.Context(), ui.LoadRequest{Model: "tiny"}); err != nil || r.NodeName != "" || !strings.Contains(r.Reason, "its device cpu is cordoned") {
		t.Errorf("got %+v, %v", r, err)
	}
	if r, err := cordon(false, "cpu"); err != nil || len(r.Node.CordonedDevices) != 0 {
		t.Errorf("got %+v, %v", r.Node, err)
	}
	eventually(t, "it is loaded", func() bool { return d.serving("tiny") })
}

// TestWhatWasJustLoadedIsFresh for as long as its load took, within bounds, by the
// holder's own clock alone; and again once it was ready anew.
func TestWhatWasJustLoadedIsFresh(t *testing.T) {
	at := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		loadMS int64
		least  time.Duration
	}{"a quick load": {10, servesLeast}, "one that was not seen": {0, servesLeast}, "a load of a minute": {60_000, time.Minute}, "a long load": {3_600_000, servesMost}} {
		var u usage
		told := func(after time.Duration, state catalog.ReplicaState) bool {
			rs := []catalog.ReplicaStatus{{Model: "m", State: state, LoadMS: tc.loadMS}}
			u.tell(rs, nil, at.Add(after))
			return rs[0].Fresh
		}
		if told(0, catalog.ReplicaLoading) || !told(time.Second, catalog.ReplicaReady) || !told(tc.least, catalog.ReplicaReady) {
			t.Errorf("%s: it is not fresh for %v", name, tc.least)
		}
		u.touch(catalog.AssignmentID{Model: "m"}, at.Add(tc.least)) // use does not make it so again
		if told(time.Second+tc.least, catalog.ReplicaReady) || told(time.Hour, catalog.ReplicaLoading) || !told(time.Hour+time.Second, catalog.ReplicaReady) {
			t.Errorf("%s: it is fresh for longer than %v, or not after another load", name, tc.least)
		}
	}
}

func TestAWaitIsToldInSteps(t *testing.T) {
	for seconds, want := range map[int]int64{0: 0, 7: 0, 8: 8, 15: 8, 16: 16, 63: 32, 64: 64, 600: 512} {
		if got := catalog.WaitedStep(time.Duration(seconds)*time.Second + time.Millisecond); got != want {
			t.Errorf("after %d s: %d, want %d", seconds, got, want)
		}
	}
	var w wants
	at := time.Unix(100, 0)
	defer w.hold(wanted{"m", 0}, 1, at)()
	if got := w.list(nil, at.Add(40*time.Second)); len(got) != 1 || got[0].Waited != 32 {
		t.Errorf("got %+v", got)
	}
}

// TestARequestMayWaitForItsTurn, and not for what no node can have.
func TestARequestMayWaitForItsTurn(t *testing.T) {
	m := catalog.Model{ID: "m", Name: "m", Scale: catalog.Scale{Max: 1}}
	for _, waits := range []bool{true, false} {
		v := &view{models: []catalog.Model{m}, decisions: []placement.Decision{{Model: "m", Unsatisfied: true, Waits: waits, Reason: "why"}}}
		if got := v.route(m); got.Loadable != waits || got.Problem != "why" || waits && got.Stage != "why" {
			t.Errorf("waits %v: %+v", waits, got)
		}
	}
}
