package catalog

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestMemoryNeed(t *testing.T) {
	for _, tc := range []struct {
		name string
		m    Model
		p    Profile
		want int64
	}{
		{"file and KV by header", Model{Source: Source{SizeBytes: 1000, KVBytesPerToken: 10}}, Profile{Context: 100, Parallel: 2}, 1000 + 10*100*2},
		{"trained context bounds it", Model{Source: Source{SizeBytes: 0, KVBytesPerToken: 1, ContextTrain: 50}}, Profile{Parallel: 1}, 50},
		{"defaults", Model{Source: Source{KVBytesPerToken: 1}}, Profile{}, DefaultContext * DefaultParallel},
		{"no header", Model{Source: Source{SizeBytes: 1000}}, Profile{}, 1200},
		{"no header, whatever the profile", Model{Source: Source{SizeBytes: 1000}}, Profile{Context: 1 << 20, Parallel: 99}, 1200},
		{"simulated", Model{Source: Source{SizeBytes: 1 << 40, KVBytesPerToken: 1 << 20, Format: FormatSim}}, Profile{}, 64 << 20},
		{"nothing known", Model{}, Profile{}, 0},
		{"a huge cache", Model{Source: Source{SizeBytes: 1, KVBytesPerToken: math.MaxInt64}}, Profile{}, math.MaxInt64},
		{"a huge context", Model{Source: Source{KVBytesPerToken: 1 << 20}}, Profile{Context: math.MaxInt, Parallel: 1}, math.MaxInt64},
		{"many slots", Model{Source: Source{KVBytesPerToken: 1}}, Profile{Parallel: math.MaxInt}, math.MaxInt64},
		{"a huge file", Model{Source: Source{SizeBytes: math.MaxInt64}}, Profile{}, math.MaxInt64},
		{"a size below zero", Model{Source: Source{SizeBytes: -5, KVBytesPerToken: -1}}, Profile{}, 0},
	} {
		if got := tc.m.MemoryNeed(tc.p); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.name, got, tc.want)
		}
	}
}

// The need is what the numbers say, or all that there is, and never below what the file takes.
func TestMemoryNeedIsNeverTooLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Model{Source: Source{SizeBytes: rapid.Int64Min(0).Draw(t, "size"), KVBytesPerToken: rapid.Int64Min(1).Draw(t, "kv"), ContextTrain: rapid.IntMin(0).Draw(t, "trained")}}
		p := Profile{Context: rapid.IntMin(0).Draw(t, "context"), Parallel: rapid.IntMin(0).Draw(t, "parallel")}
		exact := big.NewInt(m.Source.KVBytesPerToken)
		exact.Mul(exact, big.NewInt(int64(m.ContextTokens(p)))).Mul(exact, big.NewInt(int64(p.Slots()))).Add(exact, big.NewInt(m.Source.SizeBytes))
		if most := big.NewInt(math.MaxInt64); exact.Cmp(most) > 0 {
			exact = most
		}
		if got := m.MemoryNeed(p); got != exact.Int64() {
			t.Fatalf("got %d, want %d", got, exact)
		}
	})
}

func TestContextTokens(t *testing.T) {
	for _, c := range []struct{ profile, limit, trained, want int }{
		{0, 0, 0, DefaultContext}, {-1, 0, 0, DefaultContext}, {1, 0, 0, 1}, {99999, 0, 0, 99999}, {DefaultContext + 1, 0, 0, DefaultContext + 1},
		{0, 100, 0, 100}, {0, 99999, 0, DefaultContext}, {0, 0, 100, 100}, {0, 100, 50, 50}, {0, 50, 100, 50}, {10, 50, 100, 10}, {500, 50, 100, 50},
		{0, -1, -1, DefaultContext},
	} {
		m := Model{Limits: Limits{Context: c.limit}, Source: Source{ContextTrain: c.trained}}
		if got := m.ContextTokens(Profile{Context: c.profile}); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}

func TestSlotsOfAProfile(t *testing.T) {
	for parallel, want := range map[int]int{0: DefaultParallel, -1: DefaultParallel, 1: 1, 4096: 4096} {
		if got := (Profile{Parallel: parallel}).Slots(); got != want {
			t.Errorf("%d: got %d, want %d", parallel, got, want)
		}
	}
}

func TestWhatAnEngineComputesOn(t *testing.T) {
	for devices, want := range map[string][3]bool{ // CPU, NVIDIA, AMD
		"": {true, false, false}, "nvidia": {true, true, false}, "amd": {true, false, true}, "nvidia,amd": {true, true, true}, "amd,nvidia": {true, true, true},
		"nvidia,": {true, true, false}, "NVIDIA": {true, false, false}, "nvidiax": {true, false, false}, "xamd,": {true, false, false}, "cpu": {true, false, false},
	} {
		e := EngineInfo{Devices: devices}
		if got := [3]bool{e.ComputesOn(DeviceCPU), e.ComputesOn(DeviceNVIDIA), e.ComputesOn(DeviceAMD)}; got != want {
			t.Errorf("%q: %v, want %v", devices, got, want)
		}
		if e.ComputesOn("") || e.ComputesOn("tpu") {
			t.Errorf("%q computes on what it does not name", devices)
		}
	}
}

func TestReplicasOfAPresence(t *testing.T) {
	p := Presence{Replicas: []ReplicaStatus{{Model: "a", Slot: 1, Epoch: 5}, {Model: "b", Slot: 0, Epoch: 6}, {Model: "a", Slot: 0, Epoch: 7}, {Model: "a", Slot: 1, Epoch: 9}}}
	for _, c := range []struct {
		model string
		slot  int
		epoch uint64
	}{{"a", 1, 5}, {"b", 0, 6}, {"a", 0, 7}, {"b", 1, 0}, {"A", 1, 0}, {"", 0, 0}, {"a", -1, 0}} {
		if r, ok := p.Replica(c.model, c.slot); ok != (c.epoch > 0) || r.Epoch != c.epoch {
			t.Errorf("slot %d of %q: %+v, %v", c.slot, c.model, r, ok)
		}
	}
	if _, ok := (Presence{}).Replica("a", 0); ok {
		t.Error("a node without replicas has one")
	}
}

func TestSelectorsRefuse(t *testing.T) {
	labels := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	for name, c := range map[string]struct {
		selector Selector
		labels   map[string]string
		want     string
	}{
		"nothing of nothing":      {Selector{}, nil, ""},
		"nothing of some":         {Selector{}, labels("a", "1"), ""},
		"required, there":         {Selector{Require: labels("a", "1")}, labels("a", "1", "b", "2"), ""},
		"required, absent":        {Selector{Require: labels("a", "1")}, nil, "it lacks the required label a=1"},
		"required, another":       {Selector{Require: labels("a", "1")}, labels("a", "2"), "it lacks the required label a=1"},
		"required, another case":  {Selector{Require: labels("a", "x")}, labels("a", "X", "A", "x"), "it lacks the required label a=x"},
		"required empty, absent":  {Selector{Require: labels("a", "")}, labels("b", ""), "it lacks the required label a="},
		"required empty, there":   {Selector{Require: labels("a", "")}, labels("a", ""), ""},
		"the first that lacks":    {Selector{Require: labels("c", "1", "b", "1", "a", "1")}, labels("a", "1"), "it lacks the required label b=1"},
		"forbidden, there":        {Selector{Forbid: labels("a", "1")}, labels("a", "1"), "it has the forbidden label a=1"},
		"forbidden, another":      {Selector{Forbid: labels("a", "1")}, labels("a", "2"), ""},
		"forbidden, absent":       {Selector{Forbid: labels("a", "1")}, nil, ""},
		"forbidden empty, absent": {Selector{Forbid: labels("a", "")}, nil, ""},
		"forbidden empty, there":  {Selector{Forbid: labels("a", "")}, labels("a", ""), "it has the forbidden label a="},
		"the first forbidden":     {Selector{Forbid: labels("b", "1", "a", "1")}, labels("a", "1", "b", "1"), "it has the forbidden label a=1"},
		"required before forbids": {Selector{labels("z", "1"), labels("a", "1")}, labels("a", "1"), "it lacks the required label z=1"},
		"required and forbidden":  {Selector{labels("a", "1"), labels("a", "1")}, labels("a", "1"), "it has the forbidden label a=1"},
		"required, not forbidden": {Selector{labels("a", "1"), labels("a", "2")}, labels("a", "1"), ""},
	} {
		if got := c.selector.Refuses(c.labels); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
