package process

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"llmgw/mesh/catalog"
)

func FuzzParsePidfile(f *testing.F) {
	f.Add([]byte(`{"version":1,"run":"ab","pid":5,"port":8780,"shard":{"Model":{"id":"m"}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parsePidfile(b)
		if err == nil && (r.PID < 0 || r.PID == 1 || r.Run == "" || r.Port < 0 || r.Port > 65535) {
			t.Errorf("took %+v", r)
		}
	})
}

func TestPidfileRoundTrip(t *testing.T) {
	dir := t.TempDir()
	want := record{
		Version: pidfileVersion, Boot: "b", Run: "r", PID: 42, Start: 1 << 60, ArgvHash: "h", Port: 8780, Key: "k",
		Epoch: 3, Fingerprint: "f", Cgroup: "/sys/fs/cgroup/llmgw-engine-r", Ready: true, Shard: simShard("/w"),
	}
	for range 2 {
		if err := writePidfile(dir, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readPidfile(dir)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left beside the pidfile: %v, %v", entries, err)
	}
	if g := got.group(); g.cgroup == "" {
		t.Error("own cgroup was not taken")
	}
	got.Cgroup = "/sys/fs/cgroup/llmgw-engine-other"
	if g := got.group(); g.cgroup != "" {
		t.Error("another run's cgroup was taken")
	}
}

func TestFingerprintCoversWhatAProcessCannotChange(t *testing.T) {
	base, err := fingerprint(simShard("/w"))
	if err != nil {
		t.Fatal(err)
	}
	free := int64(5)
	for name, tc := range map[string]struct {
		edit func(*catalog.Shard)
		same bool
	}{
		"epoch":          {func(s *catalog.Shard) { s.Epoch++ }, true},
		"measured":       {func(s *catalog.Shard) { s.Devices = []catalog.Device{{ID: "cpu", MemoryFree: &free}} }, true},
		"alias":          {func(s *catalog.Shard) { s.Model.Aliases = []string{"x"} }, true},
		"weights' path":  {func(s *catalog.Shard) { s.Weights = "/elsewhere" }, true},
		"digest":         {func(s *catalog.Shard) { s.Model.Source.Digest = "sha256:cd" }, false},
		"name":           {func(s *catalog.Shard) { s.Model.Name = "org/sim:1" }, false},
		"flags":          {func(s *catalog.Shard) { s.Profile.Args = []string{"-b", "1"} }, false},
		"embeddings":     {func(s *catalog.Shard) { s.Profile.Embeddings = true }, false},
		"context limit":  {func(s *catalog.Shard) { s.Model.Limits.Context = 100 }, false},
		"who is asked":   {func(s *catalog.Shard) { s.Profile.Priority, s.Profile.Weight = 7, 2.5 }, true},
		"another device": {func(s *catalog.Shard) { s.Devices = []catalog.Device{{ID: "GPU-1"}} }, false},
	} {
		s := simShard("/w")
		tc.edit(&s)
		if got, err := fingerprint(s); err != nil || (got == base) != tc.same {
			t.Errorf("%s: same %v, %v", name, got == base, err)
		}
	}
}

func TestDirectoryNamesAreShortAndApart(t *testing.T) {
	seen := map[string]replicaID{}
	for _, id := range []replicaID{
		{"a/b", 0}, {"a_b", 0}, {"a:b", 0}, {"a/b", 1}, {"..", 0}, {"../..", 0}, {".", 0}, {"", 0},
		{strings.Repeat("x", 300), 0}, {strings.Repeat("x", 301), 0}, {"a", 10}, {"a-1", 0},
	} {
		name := dirName(id)
		if len(name) > 48 || strings.ContainsAny(name, "/:") || strings.HasPrefix(name, ".") {
			t.Errorf("%v: %q", id, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%v and %v share %q", id, other, name)
		}
		seen[name] = id
	}
}
