package mesh

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

const day = 24 * time.Hour

// daysPass lets days of uptime go by on boxes that pull from each other.
func daysPass(t *testing.T, days int, boxes ...*box) {
	t.Helper()
	for range days {
		for _, b := range boxes {
			b.mesh.countUptime(day)
		}
		pullAll(t, boxes...)
	}
}

// pullAll has each box pull everything from each other one.
func pullAll(t *testing.T, boxes ...*box) {
	t.Helper()
	for _, b := range boxes {
		for _, from := range boxes {
			if b == from {
				continue
			}
			// A pull that the box makes by itself may be in the way of one.
			var err error
			eventually(t, b.cfg.Name+" pulls from "+from.cfg.Name, func() bool {
				err = b.mesh.pull(context.Background(), from.peer())
				return err == nil
			})
		}
	}
}

func (b *box) remove(key string) {
	b.t.Helper()
	_, err := b.store.Update(func(tx *store.Tx) error { return tx.Delete(crdt.NewKey("things", key)) })
	if err != nil {
		b.t.Fatal(err)
	}
}

// remembers says whether b holds anything of a row, be it that it is deleted.
func (b *box) remembers(key string) bool {
	b.t.Helper()
	items, err := b.store.Items([]crdt.Key{crdt.NewKey("things", key)})
	if err != nil {
		b.t.Fatal(err)
	}
	return len(items) > 0
}

// alarmText is what b says under a kind of alarm.
func alarmText(b *box, kind AlarmKind) string {
	for _, a := range b.mesh.Alarms() {
		if a.Kind == kind {
			return a.Text + " / " + a.Fix
		}
	}
	return ""
}

func killAll(boxes ...*box) {
	for _, b := range boxes {
		b.kill()
	}
}

func startAll(boxes ...*box) {
	for _, b := range boxes {
		b.start()
	}
}

func TestOneBoxAwayForAMonth(t *testing.T) {
	t.Parallel()
	clock := &testClock{}
	archive := t.TempDir()
	with := func(c *Config) { c.Now, c.ArchiveDir = clock.now, archive }
	a, b, c := newBox(t, "a", with), newBox(t, "b", with), newBox(t, "c", with)
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	for _, key := range []string{"kept", "gone", "edited"} {
		a.put(key, "by a")
	}
	pullAll(t, a, b, c)
	// What b writes from here on nobody else knows.
	killAll(a, b, c)
	b.start()
	b.put("made", "by b")
	b.put("edited", "by b")
	b.put("gone", "edited by b")
	b.kill()
	startAll(a, c)
	allLive(t, a, c)
	a.remove("gone")
	daysPass(t, 30, a, c)
	a.mesh.collect()
	c.mesh.collect()
	if a.remembers("gone") || c.remembers("gone") {
		t.Fatal("after a month the deletion is still remembered, so nothing is tested here")
	}
	killAll(a, c)
	clock.move(30 * day)
	startAll(a, b, c)
	allLive(t, a, b, c)
	eventually(t, "b has re-seeded", func() bool { return b.mesh.absence.epoch.Load() == 1 && !b.mesh.absence.overdue() })
	pullAll(t, a, b, c)
	for _, x := range []*box{a, b, c} {
		for key, want := range map[string]string{"kept": "by a", "gone": "", "made": "by b", "edited": "by b"} {
			if got := x.get(key); got != want {
				t.Errorf("%s has %s = %q, want %q", x.cfg.Name, key, got, want)
			}
		}
		if x != b && x.mesh.absence.epoch.Load() != 0 {
			t.Errorf("%s took itself for the one that was away", x.cfg.Name)
		}
	}
	// It says so, and where what it dropped can be found.
	files, err := filepath.Glob(filepath.Join(archive, "*.backup"))
	if err != nil || len(files) != 1 || !strings.Contains(alarmText(b, AlarmAway), files[0]) {
		t.Errorf("archives %v (%v), alarm %q", files, err, alarmText(b, AlarmAway))
	}
	// Gossip goes both ways again.
	b.put("later", "1")
	eventually(t, "a hears of b", func() bool { return a.get("later") == "1" })
}

func TestAllBoxesAwayForAMonth(t *testing.T) {
	t.Parallel()
	ahead, behind := &testClock{}, &testClock{}
	a, b := newBox(t, "a", func(c *Config) { c.Now = ahead.now }), newBox(t, "b", func(c *Config) { c.Now = behind.now })
	b.join(a)
	allLive(t, a, b)
	a.put("kept", "1")
	a.put("gone", "1")
	daysPass(t, 20, a, b)
	killAll(a, b)
	a.start()
	a.remove("gone")
	a.put("made", "1")
	a.kill()
	b.start()
	b.put("by b", "1")
	b.kill()
	ahead.move(30 * day)
	behind.move(-300 * day)
	startAll(a, b)
	allLive(t, a, b)
	pullAll(t, a, b)
	for _, x := range []*box{a, b} {
		if x.get("kept") != "1" || x.get("made") != "1" || x.get("by b") != "1" || x.get("gone") != "" {
			t.Errorf("%s: kept %q, made %q, by b %q, gone %q", x.cfg.Name, x.get("kept"), x.get("made"), x.get("by b"), x.get("gone"))
		}
		if x.mesh.absence.epoch.Load() != 0 || hasAlarm(x, AlarmAway) {
			t.Errorf("%s re-seeded: %s", x.cfg.Name, alarmText(x, AlarmAway))
		}
	}
}

// setBack puts an earlier copy of the state directory in the place of b's.
func setBack(t *testing.T, b *box, old string) {
	t.Helper()
	b.kill()
	b.dir = t.TempDir()
	if err := os.CopyFS(b.dir, os.DirFS(old)); err != nil {
		t.Fatal(err)
	}
	b.start()
}

func TestBoxWhoseDiskWasSetBack(t *testing.T) {
	t.Parallel()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	b.put("before", "1")
	pullAll(t, a, b, c)
	b.kill()
	image := t.TempDir()
	if err := os.CopyFS(image, os.DirFS(b.dir)); err != nil {
		t.Fatal(err)
	}
	b.start()
	allLive(t, a, b, c)
	for i := range 20 {
		b.put(fmt.Sprintf("lost%d", i), "1")
	}
	b.remove("before")
	pullAll(t, a, b, c)
	id := b.store.ID()
	setBack(t, b, image)
	allLive(t, a, b, c)
	eventually(t, "b has a new identity and the state of another", func() bool {
		return b.store.ID() != id && b.mesh.absence.epoch.Load() > 0 && !b.mesh.absence.overdue()
	})
	if !strings.Contains(alarmText(b, AlarmRolledBack), "set back") {
		t.Errorf("it says %q", alarmText(b, AlarmRolledBack))
	}
	pullAll(t, a, b, c)
	for _, x := range []*box{a, b, c} {
		if x.get("before") != "" || x.get("lost0") != "1" || x.get("lost19") != "1" {
			t.Errorf("%s: before %q, lost0 %q, lost19 %q", x.cfg.Name, x.get("before"), x.get("lost0"), x.get("lost19"))
		}
	}
	if by := b.store.SpendID().Store; by == id || by != b.store.ID() {
		t.Errorf("it counts under %v, its store is %v and was %v", by, b.store.ID(), id)
	}
	// The others take gossip of the new identity, and do not call it an offence.
	b.put("after", "1")
	for _, x := range []*box{a, c} {
		eventually(t, x.cfg.Name+" hears of it", func() bool { return x.get("after") == "1" })
		if hasAlarm(x, AlarmMisbehaving) {
			t.Errorf("%s: %s", x.cfg.Name, alarmText(x, AlarmMisbehaving))
		}
	}
}

// The log of a box that was set back may have grown beyond what a peer knew before
// the two meet.
func TestSetBackDiskIsFoundHoweverMuchWasWrittenSince(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	pullAll(t, a, b)
	b.kill()
	image := t.TempDir()
	if err := os.CopyFS(image, os.DirFS(b.dir)); err != nil {
		t.Fatal(err)
	}
	b.start()
	allLive(t, a, b)
	b.put("lost", "1")
	pullAll(t, a, b)
	id := b.store.ID()
	a.kill()
	setBack(t, b, image)
	for i := range 50 {
		b.put(fmt.Sprintf("new%d", i), "1")
	}
	a.start()
	eventually(t, "b has a new identity", func() bool { return b.store.ID() != id })
	eventually(t, "both have all", func() bool {
		return a.get("lost") == "1" && b.get("lost") == "1" && a.get("new49") == "1" && b.get("new0") == "1"
	})
}

func (b *box) backup(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := b.store.Backup(f); err != nil {
		t.Fatal(err)
	}
	return path
}

func (b *box) restore(t *testing.T, backup string) {
	t.Helper()
	f, err := os.Open(backup)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b.dir = filepath.Join(t.TempDir(), "restored")
	if err := store.Restore(b.dir, f, store.Options{}); err != nil {
		t.Fatal(err)
	}
}

func TestRestoredBoxTakesOverTheStateOfTheMesh(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	a.put("kept", "1")
	a.put("revoked", "1")
	pullAll(t, a, b)
	old, id := b.backup(t), b.store.ID()
	a.remove("revoked")
	b.put("later", "1")
	pullAll(t, a, b)
	pullAll(t, a, b) // what was pulled is told with the next question
	b.mesh.countUptime(time.Hour)
	a.mesh.countUptime(time.Hour)
	a.mesh.collect()
	if a.remembers("revoked") {
		t.Fatal("the deletion is still remembered, so nothing is tested here")
	}
	b.kill()
	b.restore(t, old)
	b.start()
	if b.store.ID() == id {
		t.Fatal("the restored store writes under its old identity")
	}
	allLive(t, a, b)
	eventually(t, "b has re-seeded", func() bool { return b.mesh.absence.epoch.Load() == 1 })
	pullAll(t, a, b)
	for _, x := range []*box{a, b} {
		if x.get("kept") != "1" || x.get("later") != "1" || x.get("revoked") != "" {
			t.Errorf("%s: kept %q, later %q, revoked %q", x.cfg.Name, x.get("kept"), x.get("later"), x.get("revoked"))
		}
	}
}

func TestAllRestoredBoxesGoOnTogether(t *testing.T) {
	t.Parallel()
	clock := &testClock{}
	with := func(c *Config) { c.Now = clock.now }
	a, b, c := newBox(t, "a", with), newBox(t, "b", with), newBox(t, "c", with)
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	a.put("shared", "1")
	pullAll(t, a, b, c)
	killAll(a, b, c)
	boxes := []*box{a, b, c}
	for _, x := range boxes {
		x.start()
		x.put("only "+x.cfg.Name, "1")
		old := x.backup(t)
		x.kill()
		x.restore(t, old)
	}
	startAll(a, b, c)
	allLive(t, a, b, c)
	if !strings.Contains(alarmText(a, AlarmAway), "exchanges no rows") {
		t.Errorf("while it waits it says %q", alarmText(a, AlarmAway))
	}
	if err := a.mesh.Offer(context.Background()); !errors.Is(err, errOverdue) {
		t.Errorf("an offer meanwhile: %v", err)
	}
	eventually(t, "all have what each of them had", func() bool {
		clock.move(50 * time.Millisecond)
		for _, x := range boxes {
			for _, y := range boxes {
				if x.get("only "+y.cfg.Name) != "1" {
					return false
				}
			}
		}
		return a.get("shared") == "1"
	})
	for _, x := range boxes {
		if x.mesh.absence.overdue() || x.mesh.absence.epoch.Load() != 0 {
			t.Errorf("%s: stage %d, %d re-seeds", x.cfg.Name, x.mesh.absence.stage(), x.mesh.absence.epoch.Load())
		}
	}
}

func TestReseedSurvivesAnInterruption(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	for i := range 60 { // more than two pages
		a.put(fmt.Sprintf("k%d", i), strings.Repeat("x", 8<<10))
	}
	b.put("mine", "1")
	pullAll(t, a, b)
	old := b.backup(t)
	b.kill()
	b.restore(t, old)
	// a now breaks off after its first page of rows.
	broken := make(chan struct{}, 100)
	a.mesh.handle(protocolSync, members, func(s *stream) {
		defer s.Reset()
		var ask syncAsk
		if a.mesh.readSync(s, &ask) != nil || ask.Kind != askPull {
			return
		}
		if ask.Seq != 0 {
			t.Errorf("a re-seed asks from %d on", ask.Seq)
		}
		page, err := a.store.Since(0, pageBytes)
		if err != nil || !page.More {
			t.Errorf("page %+v, %v", page.More, err)
		}
		if a.mesh.writeSync(s, syncPage{Index: page.IndexID, More: true}) == nil && a.mesh.sendPage(s, page) == nil {
			broken <- struct{}{}
		}
	})
	b.start()
	for range 3 {
		select {
		case <-broken:
		case <-time.After(patience):
			t.Fatal("b does not try again")
		}
	}
	if b.mesh.absence.epoch.Load() != 0 || len(b.get("k59")) != 8<<10 || b.get("mine") != "1" {
		t.Errorf("half a re-seed took effect: %d, %d bytes, %q", b.mesh.absence.epoch.Load(), len(b.get("k59")), b.get("mine"))
	}
	a.mesh.handle(protocolSync, members, a.mesh.serveSync)
	eventually(t, "b has re-seeded", func() bool { return b.mesh.absence.epoch.Load() == 1 && !b.mesh.absence.overdue() })
	if len(b.get("k0")) != 8<<10 || len(b.get("k59")) != 8<<10 || b.get("mine") != "1" {
		t.Error("rows are missing after the re-seed")
	}
}

func TestStoreInUseTwiceIsFound(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	b.kill()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// Its state was copied, and only its key renewed.
	d := newBox(t, "d", func(c *Config) { c.ArchiveDir = t.TempDir() })
	d.kill()
	d.dir, d.cfg.Key = t.TempDir(), key
	if err := os.CopyFS(d.dir, os.DirFS(b.dir)); err != nil {
		t.Fatal(err)
	}
	startAll(b, d)
	id := b.store.ID()
	if d.store.ID() != id {
		t.Fatal("the copy has a store of its own, so nothing is tested here")
	}
	if _, err := d.mesh.Join(context.Background(), a.token(TokenOptions{}), true); err != nil {
		t.Fatal(err)
	}
	allLive(t, a, b, d)
	eventually(t, "the two write under two identities", func() bool { return b.store.ID() != d.store.ID() })
	eventually(t, "one of them says so", func() bool {
		return hasAlarm(b, AlarmRolledBack) || hasAlarm(d, AlarmRolledBack)
	})
	b.put("b", "1")
	d.put("d", "1")
	eventually(t, "both writes are everywhere", func() bool {
		return a.get("b") == "1" && a.get("d") == "1" && b.get("d") == "1" && d.get("b") == "1"
	})
}

func TestDeletionsAreForgottenWhenAllKnowThem(t *testing.T) {
	t.Parallel()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	a.put("x", "1")
	pullAll(t, a, b, c)
	c.kill()
	a.remove("x")
	pullAll(t, a, b)
	pullAll(t, a, b) // what was pulled is told with the next question
	a.mesh.countUptime(time.Hour)
	a.mesh.collect()
	if !a.remembers("x") {
		t.Fatal("a forgot a deletion that c has not heard of")
	}
	for _, n := range a.mesh.Nodes() {
		if want := map[string]int{c.id(): 1}[n.ID]; n.Blocks != want {
			t.Errorf("%s holds up %d deletions, want %d", n.Name, n.Blocks, want)
		}
		if n.ID == b.id() && !n.Synced {
			t.Error("b's last sync is not known")
		}
	}
	c.start()
	allLive(t, a, b, c)
	pullAll(t, a, b, c)
	pullAll(t, a, b, c)
	a.mesh.collect()
	if a.remembers("x") {
		t.Error("a deletion that everybody knows is not forgotten")
	}
	if a.get("x") != "" || b.get("x") != "" || c.get("x") != "" {
		t.Error("a deleted row is back")
	}
}

// A box of an older llmgw sends no first page, and tells nothing of its absence.
func TestPullFromAnOlderBox(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	a.store.OnLocalWrite(func([]crdt.Item) {})
	b.mesh.puller.hold()
	a.put("x", "1")
	written := a.store.Sequence()
	a.mesh.handle(protocolSync, members, func(s *stream) {
		var ask syncAsk
		err := a.mesh.readSync(s, &ask)
		var page store.Page
		if err == nil {
			page, err = a.store.Since(ask.Seq, pageBytes)
		}
		if err == nil {
			err = a.mesh.sendPage(s, page)
		}
		if err != nil {
			s.Reset()
			return
		}
		s.Close()
	})
	if err := b.mesh.pull(context.Background(), a.peer()); err != nil || b.get("x") != "1" {
		t.Errorf("%v, x = %q", err, b.get("x"))
	}
	if c, err := b.store.Cursor(a.id()); err != nil || c.IndexID != a.store.IndexID() || c.Seq < written {
		t.Errorf("cursor %+v (%v), want %d or more", c, err, written)
	}
}

// A stage from a later llmgw is one to be careful with.
func TestUnknownStageGivesNoRows(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	a.mesh.absence.heard(b.peer(), hello{Away: 9, Uptime: -5})
	got, err := a.mesh.absence.meets(b.peer(), hello{Away: 9, Uptime: 1 << 62})
	if err != nil || got.take || got.reseed || !got.give {
		t.Errorf("terms %+v, %v", got, err)
	}
	if !a.mesh.absence.behind(b.peer()) {
		t.Error("its gossip would be taken")
	}
	if up := (hello{Uptime: 1 << 62}).uptime(); up <= 0 || up > 250*366*day {
		t.Errorf("an endless uptime is taken for %s", up)
	}
}
