package node

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"llmgw/mesh/catalog"
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
	if got := w.list(nil); len(got) != 1 || got[0] != (catalog.Want{Model: "m", Replicas: 2, Since: 100, After: 7}) {
		t.Errorf("got %+v", got)
	}
	first()
	first()
	if len(w.list(nil)) != 1 {
		t.Error("a want ended while a request waits")
	}
	unloaded := []catalog.Model{{ID: "m", Unloaded: 8}}
	if got := w.list(unloaded); len(got) != 0 || !w.outlived(unloaded)["m"] {
		t.Errorf("after an unload %+v is told", got)
	}
	third := w.hold(wanted{"m", 8}, 1, at)
	if got := w.list(unloaded); len(got) != 1 || got[0].After != 8 || len(w.list(nil)) != 2 {
		t.Errorf("of requests before and after an unload %+v is told", got)
	}
	third()
	second()
	if len(w.list(nil)) != 0 || len(w.outlived(unloaded)) != 0 {
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
