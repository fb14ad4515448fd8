package catalog

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"llmgw/crdt"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"
)

// What may be kept is kept, and comes back as it was written; on another box, too.

func TestEachModelComesBack(t *testing.T) {
	a, b := quickBox(t), quickBox(t)
	rapid.Check(t, func(t *rapid.T) {
		want := models().Draw(t, "model")
		must(t, CheckModel(want))
		must(t, a.CreateModel(want))
		send(t, a, b, modelKey(want.ID))
		for _, side := range []box{a, b} {
			got, err := side.Model(want.ID)
			must(t, err)
			if want.Source != (Source{}) && time.Since(time.Unix(got.Created, 0)).Abs() > time.Minute {
				t.Errorf("made at %d", got.Created)
			}
			want.Created = got.Created
			equal(t, "model", want, got)
		}
	})
	all, err := b.Models()
	must(t, err)
	if !slices.IsSortedFunc(all, func(x, y Model) int { return strings.Compare(x.ID, y.ID) }) {
		t.Error("models are not listed by ID")
	}
}

func TestEachAPIKeyComesBack(t *testing.T) {
	a, b := quickBox(t), quickBox(t)
	_, err := a.CreateProject(Project{ID: "web"})
	must(t, err)
	rapid.Check(t, func(t *rapid.T) {
		want := apiKeys().Draw(t, "key")
		given := want
		want.Project = rapid.SampledFrom([]string{"", "web"}).Draw(t, "project")
		given.Project = strings.ToUpper(want.Project)
		must(t, a.PutAPIKey(given))
		key := crdt.NewKey(NamespaceKeys, want.ID)
		send(t, a, b, key)
		for _, side := range []box{a, b} {
			got, err := side.APIKey(want.ID)
			must(t, err)
			equal(t, "key", want, got)
		}
		if first := len(b.row(t, key).Cells[cellFirst].Value) > 0; first != want.First {
			t.Errorf("marked as the first: %v", first)
		}
	})
	all, err := b.APIKeys()
	must(t, err)
	for i := 1; i < len(all); i++ {
		if x, y := all[i-1], all[i]; x.Created > y.Created || x.Created == y.Created && x.ID >= y.ID {
			t.Fatalf("key %s of %d is listed before %s of %d", x.ID, x.Created, y.ID, y.Created)
		}
	}
}

func TestEachGroupComesBack(t *testing.T) {
	b := quickBox(t)
	rapid.Check(t, func(t *rapid.T) {
		tenant, err := b.CreateTenant(Tenant{strings.ToUpper(fresh()), rules().Draw(t, "tenant")})
		must(t, err)
		project, err := b.CreateProject(Project{strings.ToUpper(fresh()), " " + strings.ToUpper(tenant.ID), rules().Draw(t, "project")})
		must(t, err)
		if project.Tenant != tenant.ID {
			t.Errorf("created for the tenant %q, want %q", project.Tenant, tenant.ID)
		}
		tenants, err := b.Tenants()
		must(t, err)
		projects, err := b.Projects()
		must(t, err)
		for _, got := range tenants {
			if got.ID == tenant.ID {
				equal(t, "tenant", tenant, got)
			}
		}
		i := slices.IndexFunc(projects, func(p Project) bool { return p.ID == project.ID })
		equal(t, "project", project, projects[i])
	})
}

func TestEachProviderComesBack(t *testing.T) {
	a, b := quickBox(t), quickBox(t)
	rapid.Check(t, func(t *rapid.T) {
		want := providers().Draw(t, "provider")
		must(t, want.Check())
		must(t, a.SetProvider(strings.ToUpper(want.ID), func(p *Provider) error { *p = want; return nil }))
		send(t, a, b, crdt.NewKey(NamespaceProviders, want.ID))
		for _, side := range []box{a, b} {
			got, err := side.Provider(want.ID)
			must(t, err)
			for i, k := range want.Keys {
				if got.Keys[i].Secret.Reveal() != k.Secret.Reveal() {
					t.Errorf("key %d is another", i)
				}
			}
			equal(t, "provider", want, got)
		}
	})
	all, err := b.Providers()
	must(t, err)
	for i := 1; i < len(all); i++ {
		if x, y := all[i-1], all[i]; x.Priority < y.Priority || x.Priority == y.Priority && x.ID >= y.ID {
			t.Fatalf("%s of %d is listed before %s of %d", x.ID, x.Priority, y.ID, y.Priority)
		}
	}
}

func TestEachRouteComesBack(t *testing.T) {
	b := quickBox(t)
	rapid.Check(t, func(t *rapid.T) {
		want := routes().Draw(t, "route")
		must(t, CheckRoute(want))
		must(t, b.PutRoute(want))
		all, err := b.Routes()
		must(t, err)
		got, ok := ResolveRoute(all, strings.ToUpper(want.Name))
		if !ok {
			t.Fatal("it is not there")
		}
		equal(t, "route", want, got)
		must(t, b.DeleteRoute(strings.ToUpper(want.Name)))
	})
}

func TestEachNodeComesBack(t *testing.T) {
	a, b := quickBox(t), quickBox(t)
	rapid.Check(t, func(t *rapid.T) {
		want := nodeSettings().Draw(t, "settings")
		must(t, a.UpdateNode(want.Peer, func(s *NodeSettings) error { *s = want; return nil }))
		send(t, a, b, nodeKey(want.Peer))
		got, err := b.NodeSettings()
		must(t, err)
		said, ok := got[want.Peer]
		if empty := want.Location == "" && len(want.Labels) == 0 && !want.Cordoned && !want.Draining && len(want.CordonedDevices) == 0; empty {
			if ok {
				t.Errorf("nothing was said, and is kept: %+v", said)
			}
			return
		}
		equal(t, "node", want, said)
	})
}

func TestEachPriceComesBack(t *testing.T) {
	b := quickBox(t)
	rapid.Check(t, func(t *rapid.T) {
		want := prices().Draw(t, "price")
		must(t, CheckPrice(want))
		must(t, b.SetPrice(Price{strings.ToUpper(want.Model), strings.ToUpper(want.Provider), want.Micros}))
		all, err := b.Prices()
		must(t, err)
		if len(all) != 1 {
			t.Fatalf("there are %d prices", len(all))
		}
		equal(t, "price", want, all[0])
		must(t, b.UnsetPrice(want.Model, want.Provider))
	})
}

func TestAllSettingsComeBack(t *testing.T) {
	b := quickBox(t)
	rapid.Check(t, func(t *rapid.T) {
		want := settings().Draw(t, "settings")
		must(t, b.UpdateSettings(func(s map[string]string) error {
			clear(s)
			for key, value := range want {
				s[key] = value
			}
			return nil
		}))
		got, err := b.Settings()
		must(t, err)
		equal(t, "settings", want, got)
	})
}

func TestEachSessionComesBack(t *testing.T) {
	b := quickBox(t)
	rapid.Check(t, func(t *rapid.T) {
		want := Session{fresh(), rapid.Int64().Draw(t, "created"), rapid.Int64().Draw(t, "expires"), rapid.String().Draw(t, "creator")}
		must(t, b.PutSession(want))
		got, err := b.Session(want.ID)
		must(t, err)
		equal(t, "session", want, got)
		want.Expires++
		must(t, b.PutSession(want))
		got, err = b.Session(want.ID)
		must(t, err)
		equal(t, "prolonged session", want, got)
	})
}

// A presence keeps what is unknown apart from what is zero, in both of its encodings.
func TestAPresenceTellsUnknownFromZero(t *testing.T) {
	zero, much, cool := int64(0), int64(math.MaxInt64), 0.0
	want := Presence{
		Peer: "p", Boot: math.MaxUint64, Sequence: 7, Name: "böx", Version: "1", Addresses: []string{"/ip4/192.0.2.1/tcp/8771"}, API: []string{"192.0.2.1:8770"},
		Inventory: Inventory{Arch: "amd64", OS: "linux", Threads: 3, RAMTotal: &much, RAMFree: &zero, Notes: []string{"no driver"}, Devices: []Device{
			{ID: "GPU-1", Kind: DeviceNVIDIA, MemoryTotal: &much, MemoryFree: &zero, BusyPercent: &cool}, {ID: "cpu", Kind: DeviceCPU}}},
		Engines:  []EngineInfo{{Name: EngineSim, Version: "1", From: "built in", Devices: "nvidia,amd"}},
		Replicas: []ReplicaStatus{{Model: "m", Slot: 1, Epoch: 9, State: ReplicaReady, Lacks: []Ability{AbilityTools}, LastLines: []string{"x"}, Idle: true, Fresh: true, LoadKnown: true, Waiting: 2, AtOnce: 3, KVUse: 0.05, KVTokens: 4, Cleared: 5}},
		Weights:  []string{"sha256:01"}, Fetches: []FetchStatus{{Source: "s", As: "m", Done: 1}}, Wants: []Want{{"m", 1, 5, 8, math.MaxUint64}}, Stopping: true,
		Hosts: []HostStatus{{ID: "h", Kind: HostOllama, Up: true, LoadKnown: true, KVUse: 0.05, KVTokens: 1, Models: []HostModel{{Name: "x", Cold: true}}}}, Complete: true, DiskFree: &zero,
	}
	var byCBOR, byJSON Presence
	must(t, cbor.Unmarshal(enc(t, want), &byCBOR))
	raw, err := json.Marshal(want)
	must(t, err)
	must(t, json.Unmarshal(raw, &byJSON))
	equal(t, "by CBOR", want, byCBOR)
	equal(t, "by JSON", want, byJSON)
	for _, got := range []Presence{byCBOR, byJSON} {
		cpu := got.Inventory.Devices[1]
		if cpu.MemoryFree != nil || cpu.MemoryTotal != nil || cpu.BusyPercent != nil || cpu.Celsius != nil {
			t.Errorf("what was not measured is told: %+v", cpu)
		}
		if free := got.Inventory.Devices[0].MemoryFree; free == nil || *free != 0 || got.DiskFree == nil {
			t.Error("a zero that was measured is lost")
		}
	}
}

// Two nodes that write the same setting write the same bytes.
func TestTheEncodingIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := models().Draw(t, "model")
		again := m
		again.Labels = Selector{map[string]string{}, map[string]string{}}
		for _, key := range rapid.Permutation(sortedKeys(m.Labels.Require)).Draw(t, "require") {
			again.Labels.Require[key] = m.Labels.Require[key]
		}
		for _, key := range rapid.Permutation(sortedKeys(m.Labels.Forbid)).Draw(t, "forbid") {
			again.Labels.Forbid[key] = m.Labels.Forbid[key]
		}
		if string(enc(t, m)) != string(enc(t, again)) {
			t.Fatal("the same model is encoded in two ways")
		}
	})
}
