package mesh

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/catalog"
	"llmgw/mesh/token"
)

// TestBootNumbersGrow: whatever the clock says, and whatever is left of the last one.
func TestBootNumbersGrow(t *testing.T) {
	s := memoryStore(t)
	rapid.Check(t, func(rt *rapid.T) {
		if err := s.SetMeta(metaBoot, nil); err != nil {
			rt.Fatal(err)
		}
		var last uint64
		for range rapid.IntRange(1, 10).Draw(rt, "starts") {
			now := time.UnixMilli(rapid.Int64Range(-5, 1<<45).Draw(rt, "clock"))
			boot, err := nextBoot(s, now)
			if err != nil || boot <= last || boot == 0 {
				rt.Fatalf("boot %d after %d, %v", boot, last, err)
			}
			if now.UnixMilli() > 0 && boot < uint64(now.UnixMilli()) {
				rt.Fatalf("boot %d is behind the clock, which would make it one that was lost", boot)
			}
			last = boot
		}
	})
	for name, raw := range map[string][]byte{"half a number": {1, 2, 3}, "too much": make([]byte, 9)} {
		if err := s.SetMeta(metaBoot, raw); err != nil {
			t.Fatal(err)
		}
		if boot, err := nextBoot(s, time.UnixMilli(77)); err != nil || boot != 77 {
			t.Errorf("%s: %d, %v", name, boot, err)
		}
	}
	if err := s.SetMeta(metaBoot, binary.BigEndian.AppendUint64(nil, 1<<50)); err != nil {
		t.Fatal(err)
	}
	if boot, err := nextBoot(s, time.UnixMilli(77)); err != nil || boot != 1<<50+1 {
		t.Errorf("after a clock that was set back: %d, %v", boot, err)
	}
}

// TestSavedMeshesThatCannotBeRead end the start with words, and do not found another mesh
// over the rows.
func TestSavedMeshesThatCannotBeRead(t *testing.T) {
	good, err := marshal(savedMesh{Mesh: make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	short, err := marshal(savedMesh{Mesh: make([]byte, 31)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		raw  []byte
		at   string
		text string
	}{
		"nonsense":                {[]byte{0xff}, metaCurrent, "read mesh/current: "},
		"half of it":              {good[:len(good)-3], metaCurrent, "read mesh/current: "},
		"another length":          {short, metaCurrent, "read mesh/current: mesh ID of 31 bytes"},
		"a pending one, nonsense": {[]byte{0xff}, metaPending, "read mesh/pending: "},
		"a pending one, no rows":  {good, metaPending, "read rows of the new mesh"},
	} {
		t.Run(name, func(t *testing.T) {
			m := bareMesh(t, "a")
			before, rows := m.view.Load().mesh, len(m.memberRows(t))
			if err := m.store.SetMeta(c.at, c.raw); err != nil {
				t.Fatal(err)
			}
			wantText(t, name, m.openMembership(), c.text)
			if m.view.Load().mesh != before || len(m.memberRows(t)) != rows {
				t.Errorf("%s: another mesh was founded", name)
			}
		})
	}
	m := bareMesh(t, "a")
	before := m.view.Load().mesh
	if err := m.openMembership(); err != nil || m.view.Load().mesh != before {
		t.Errorf("opened again: %v", err)
	}
}

// TestWhatMakesAMeshWorthKeeping: each thing for itself, and then for good.
func TestWhatMakesAMeshWorthKeeping(t *testing.T) {
	put := func(m *Mesh, ns, cell, value string) {
		_, err := m.store.Update(func(tx *store.Tx) error { return tx.Set(crdt.NewKey(ns, "x"), cell, []byte(value)) })
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		do   func(m *Mesh)
		keep bool
	}{
		"nothing":                 {func(*Mesh) {}, false},
		"its own name":            {func(m *Mesh) { put(m, nsMembers, "x", "y") }, false},
		"the first API key":       {func(m *Mesh) { put(m, catalog.NamespaceKeys, "first", "1") }, false},
		"another API key":         {func(m *Mesh) { put(m, catalog.NamespaceKeys, "name", "n") }, true},
		"a model that was made":   {func(m *Mesh) { put(m, catalog.NamespaceModels, "name", "n") }, true},
		"a setting":               {func(m *Mesh) { put(m, catalog.NamespaceSettings, "v", "1") }, true},
		"a tenant":                {func(m *Mesh) { put(m, catalog.NamespaceTenants, "v", "1") }, true},
		"a route":                 {func(m *Mesh) { put(m, catalog.NamespaceRoutes, "v", "1") }, true},
		"a join token":            {func(m *Mesh) { made(t, m, TokenOptions{}) }, false},
		"a second member":         {func(m *Mesh) { m.adds(t, 1, RoleMember) }, true},
		"a member that was there": {func(m *Mesh) { p := m.adds(t, 1, RoleMember); _ = m.Ban(t.Context(), p.String(), "") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := bareMesh(t, "a")
			if !m.Provisional() {
				t.Fatal("a new mesh is worth keeping")
			}
			c.do(m)
			if got := m.Provisional(); got == c.keep {
				t.Errorf("%s: provisional %v", name, got)
			}
			if !c.keep {
				return
			}
			// It stays so when what made it is gone.
			saved, ok, err := m.readSaved(metaCurrent)
			if err != nil || !ok || !saved.Settled || m.Provisional() {
				t.Errorf("%s: not for good: %+v, %v", name, saved, err)
			}
			if err := m.foundRandom(); err != nil || !m.Provisional() {
				t.Errorf("%s: a new mesh is worth keeping from the start: %v", name, err)
			}
		})
	}
}

// TestWhoMayJoin: what the box itself says before it asks anybody.
func TestWhoMayJoin(t *testing.T) {
	m := bareMesh(t, "a")
	here, there := token.Token{Mesh: m.view.Load().mesh}, token.Token{Mesh: [32]byte{1}}
	if err := m.mayJoin(there, false); err != nil {
		t.Errorf("a provisional one: %v", err)
	}
	wantKind(t, m.mayJoin(here, true), token.AlreadyMember)
	m.adds(t, 1, RoleMember)
	if e := wantKind(t, m.mayJoin(there, false), token.NotProvisional); !strings.Contains(e.Detail, "it belongs to mesh "+m.MeshID()+"; join with replace to leave that") {
		t.Errorf("%v", e)
	}
	if e := wantKind(t, m.mayJoin(there, true), token.NotProvisional); e.Detail != "and there is no folder to archive it in" {
		t.Errorf("%v", e)
	}
	_, err := m.archive()
	wantKind(t, err, token.NotProvisional)
	m.cfg.ArchiveDir = t.TempDir()
	if err := m.mayJoin(there, true); err != nil {
		t.Errorf("with a folder: %v", err)
	}
	path, err := m.archive()
	if err != nil || !strings.Contains(path, m.view.Load().mesh.tag()) {
		t.Errorf("%s, %v", path, err)
	}
	m.view.Load().roster.outcast = true
	if err := m.mayJoin(here, false); err != nil {
		t.Errorf("back to its own mesh after a ban: %v", err)
	}
}

// TestMeshesOfOneSecret: the same for all who have it, and a mesh with content does not
// give way to it.
func TestMeshesOfOneSecret(t *testing.T) {
	secret := bytes.Repeat([]byte{3}, 32)
	a, b := bareMesh(t, "a", withSecret(secret)), bareMesh(t, "b", withSecret(secret))
	if a.view.Load().mesh != b.view.Load().mesh || !a.admitsBySecret() {
		t.Error("one secret, two meshes")
	}
	c := bareMesh(t, "c")
	if c.admitsBySecret() {
		t.Error("without a secret it admits by one")
	}
	c.cfg.Secret = secret
	if c.admitsBySecret() {
		t.Error("in another mesh it admits by the secret")
	}
	c.adds(t, 1, RoleMember)
	before := c.MeshID()
	if e := wantKind(t, c.openMembership(), token.NotProvisional); !strings.Contains(e.Detail, before) || !strings.Contains(e.Detail, a.MeshID()) {
		t.Errorf("%v", e)
	}
	if c.MeshID() != before {
		t.Error("it moved all the same")
	}
	if err := c.foundRandom(); err != nil {
		t.Fatal(err)
	}
	if err := c.openMembership(); err != nil || c.MeshID() != a.MeshID() {
		t.Errorf("a provisional one did not move: %v", err)
	}
	// Its own record is shown where it is new, and made anew where it was used up.
	v := a.view.Load()
	r, err := secretRoot(secret)
	if err != nil {
		t.Fatal(err)
	}
	for floor, want := range map[uint64]uint64{0: 1, 1: 2, 9: 10} {
		body, blob, err := a.recordAbove(v, r, floor)
		if err != nil || body.Serial != want || body.Issuer != "" {
			t.Errorf("above %d: serial %d, %v", floor, body.Serial, err)
		}
		if _, err := checkRecord(r.mesh, a.self, recordCell(body), crdt.Cell{At: crdt.HLC(body.Serial), Value: blob}); err != nil {
			t.Error(err)
		}
	}
}

// TestClaimsOfACopy: how many say so before this box stops serving, and which of two does.
func TestClaimsOfACopy(t *testing.T) {
	for name, c := range map[string]struct {
		live   int
		claims int   // by so many of them
		boot   int64 // of the copy, beside the own one
		stops  bool
	}{
		"by the only other one":     {1, 1, -1, true},
		"by one of two":             {2, 1, -1, false},
		"by two of two":             {2, 2, -1, true},
		"by one of five":            {5, 1, -1, false},
		"by two of five":            {5, 2, -1, true},
		"by all, of one that is up": {5, 5, 1, false}, // the copy came later: it stops
	} {
		t.Run(name, func(t *testing.T) {
			m := bareMesh(t, "a")
			for i := range c.live {
				m.speaksTo(m.adds(t, byte(i+1), RoleMember), crdt.ReplicaID(i+1))
			}
			for i := range c.claims {
				for range 3 { // the same one again counts once
					m.clones.claimed(peerOf(t, byte(i+1)), uint64(int64(m.boot)+c.boot), "n hears it twice")
				}
			}
			if got := m.clones.stopped(); got != c.stops || (m.Serving() != nil) != c.stops {
				t.Errorf("%s: stopped %v, serving: %v", name, got, m.Serving())
			}
			alarms := m.alarmsOf(AlarmClone)
			if len(alarms) != 1 || strings.HasSuffix(alarms[0], "; this box came later and does not serve") != c.stops {
				t.Errorf("%s: %q", name, alarms)
			}
		})
	}
	m := bareMesh(t, "a")
	for _, boot := range []uint64{0, m.boot} {
		m.clones.claimed(peerOf(t, 1), boot, "x")
	}
	if len(m.alarmsOf(AlarmClone)) != 0 || len(m.clones.claims) != 0 {
		t.Error("its own boot number, or none, is a copy")
	}
	for i := range uint64(10 * maxEvents) {
		m.clones.claimed(peerOf(t, 1), math.MaxUint64-i, "x")
	}
	if len(m.clones.claims) > maxEvents+1 {
		t.Errorf("%d claims are kept", len(m.clones.claims))
	}
}

// TestOldClaimsOfACopyStopNobody: two members that heard a copy at different times say
// nothing of now, nor does one that was removed.
func TestOldClaimsOfACopyStopNobody(t *testing.T) {
	clock := &fixedClock{}
	m := bareMesh(t, "a", withFixedClock(clock))
	for i := range 3 {
		m.speaksTo(m.adds(t, byte(i+1), RoleMember), crdt.ReplicaID(i+1))
	}
	claim := func(by byte) { m.clones.claimed(peerOf(t, by), m.boot-1, "n hears it twice") }
	claim(1)
	clock.at = clock.at.Add(cloneFor + 1)
	claim(2)
	claim(9) // no member
	if m.clones.stopped() {
		t.Error("an old claim counts")
	}
	clock.at = clock.at.Add(cloneFor)
	if claim(3); !m.clones.stopped() {
		t.Error("two that say so within a minute do not count")
	}
}

// TestBootsOfAPeer: a restart is none of two, however its frames arrive.
func TestBootsOfAPeer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var b bootLog
		now, boot := time.Unix(1000, 0), uint64(10)
		for range rapid.IntRange(1, 20).Draw(rt, "restarts") {
			for range rapid.IntRange(1, 5).Draw(rt, "frames") {
				now = now.Add(time.Duration(rapid.IntRange(0, 60_000).Draw(rt, "ms")) * time.Millisecond)
				b.note(boot, now)
				if b.twin(boot, now) != 0 {
					rt.Fatal("one that was never heard beside another is two")
				}
			}
			began := now
			boot++
			b.note(boot, now)
			// Frames of the old run that were on their way.
			for range rapid.IntRange(0, 3).Draw(rt, "echoes") {
				at := began.Add(time.Duration(rapid.Int64Range(0, int64(bootOverlap)-1).Draw(rt, "late")))
				b.note(boot-1, at)
			}
			if b.twin(boot, now) != 0 {
				rt.Fatal("an echo of a restart is a copy")
			}
			now = now.Add(bootOverlap)
		}
		b.note(boot-1, now.Add(bootOverlap))
		if b.twin(boot, now.Add(bootOverlap)) != boot-1 || b.twin(boot-1, now.Add(bootOverlap)) != boot {
			rt.Fatal("two that run at once are not seen")
		}
	})
}
