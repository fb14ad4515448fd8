package affinity

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func sample() message {
	c := query(1, 2, 3).Chain
	return message{
		boot: 1 << 60, seq: 300,
		loads:     []loadOf{{5, 12_000, 3, 8000}, {1 << 63, 0, 1, 0}},
		decisions: []decision{{replica: 5, session: 1 << 47, chain: c}, {replica: 6, chain: Chain{}}},
	}
}

var unexported = cmp.AllowUnexported(message{}, loadOf{}, decision{})

func TestMessageComesBack(t *testing.T) {
	got, err := decode(encode(sample()))
	if diff := cmp.Diff(sample(), got, unexported); err != nil || diff != "" {
		t.Errorf("error %v; -want +got\n%s", err, diff)
	}
}

func TestBrokenMessagesAreRefused(t *testing.T) {
	whole := encode(sample())
	for n := range whole {
		if _, err := decode(whole[:n]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	if _, err := decode(append(whole, 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a byte too many: %v", err)
	}
	newer := bytes.Clone(whole)
	newer[0]++
	if _, err := decode(newer); !errors.Is(err, ErrVersion) {
		t.Errorf("another version: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(sample()))
	f.Add([]byte{messageVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			return
		}
		again, err := decode(encode(m))
		if err != nil {
			t.Fatalf("what was decoded does not come back: %v", err)
		}
		if again.boot != m.boot || again.seq != m.seq || len(again.loads) != len(m.loads) {
			t.Errorf("decoded %+v, then %+v", m, again)
		}
		p := NewPicker(1)
		if _, err := p.Take("h", b, start); err != nil {
			t.Errorf("decoded, but not taken: %v", err)
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	p := NewPicker(1)
	serve(p, query(1, 2, 3), others(2), start)
	f.Add(p.snapshot(start))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := NewPicker(2)
		if err := p.TakeSnapshot(bytes.NewReader(b), start); err == nil {
			for _, r := range p.replicas {
				checkIndex(t, r.index)
			}
		}
	})
}

func TestFullMessageKeepsTheNewest(t *testing.T) {
	p, cs := NewPicker(1), others(2)
	long := make([]int, 400)
	for i := range 40 {
		long[0] = i
		serve(p, query(long...), cs, start)
	}
	msg, _ := p.Flush(start)
	m, err := decode(msg)
	if err != nil || len(msg) > MaxMessage || len(m.decisions) == 0 || len(m.decisions) == 40 {
		t.Fatalf("%d bytes with %d decisions, %v", len(msg), len(m.decisions), err)
	}
	if diff := cmp.Diff(query(long...).Chain, m.decisions[0].chain); diff != "" {
		t.Errorf("the first is not the newest: %s", diff)
	}
}

// flush passes a head's message to another; the time to the next is returned.
func flush(t *testing.T, from, to *Picker, now time.Time) (gap bool, again time.Duration) {
	t.Helper()
	msg, again := from.Flush(now)
	if msg == nil {
		return false, again
	}
	gap, err := to.Take("from", msg, now)
	if err != nil {
		t.Fatalf("take: %v", err)
	}
	return gap, again
}

func TestHeadsAgree(t *testing.T) {
	a, b, cs := NewPicker(1), NewPicker(2), others(8)
	tk := a.Pick(query(1, 2, 3, 4), cs, start)
	flush(t, a, b, start)
	costs := b.Explain(query(1, 2, 3, 4), cs, start)
	if c := costs[tk.Index]; c.Warm != 2000 || c.Pending != 2000 || c.InFlight != 1 {
		t.Errorf("the other head believes %+v of the replica that was chosen", c)
	}
	tk.First(start)
	tk.Done(start)
	flush(t, a, b, start)
	if c := b.Explain(query(1, 2, 3, 4), cs, start)[tk.Index]; c.Warm != 2000 || c.Pending != 0 || c.InFlight != 0 || !c.Chosen {
		t.Errorf("after its end the other head believes %+v", c)
	}
}

func TestLostMessagesLoseNothing(t *testing.T) {
	a, b, cs := NewPicker(1), NewPicker(2), others(8)
	tk := a.Pick(query(1, 2), cs, start)
	for range tellings - 1 {
		if msg, again := a.Flush(start); msg == nil || again != repeatAfter {
			t.Fatalf("%d bytes, again after %v", len(msg), again)
		}
	}
	_, again := flush(t, a, b, start)
	if c := b.Explain(query(1, 2), cs, start)[tk.Index]; c.Warm != 1000 || c.InFlight != 1 || again != refreshAfter {
		t.Errorf("after the repetition the other head believes %+v; next after %v", c, again)
	}
	tk.Done(start)
	for range tellings {
		_, again = flush(t, a, b, start)
	}
	if msg, _ := a.Flush(start); again != 0 || msg != nil {
		t.Errorf("an idle head goes on telling: %d bytes, next after %v", len(msg), again)
	}
}

func TestOldMessagesChangeNoLoad(t *testing.T) {
	a, b, cs := NewPicker(1), NewPicker(2), others(1)
	tk := a.Pick(query(1, 2), cs, start)
	old, _ := a.Flush(start)
	tk.Done(start)
	flush(t, a, b, start)
	if _, err := b.Take("from", old, start); err != nil {
		t.Fatal(err)
	}
	if c := b.Explain(query(5), cs, start)[0]; c.InFlight != 0 {
		t.Errorf("a late message brought %d requests back", c.InFlight)
	}
}

func TestGapsAsk(t *testing.T) {
	a, b, cs := NewPicker(1), NewPicker(2), others(1)
	say := func(lost int) bool {
		for range lost {
			serve(a, query(1), cs, start)
			a.Flush(start)
		}
		serve(a, query(1), cs, start)
		gap, _ := flush(t, a, b, start)
		return gap
	}
	for i, c := range []struct {
		lost int
		want bool
	}{{0, false}, {0, false}, {tellings - 1, false}, {tellings, true}, {0, false}} {
		if got := say(c.lost); got != c.want {
			t.Errorf("step %d, %d lost: gap %v", i, c.lost, got)
		}
	}
	late := NewPicker(3)
	serve(a, query(1), cs, start)
	if gap, _ := flush(t, a, late, start); !gap {
		t.Error("a head that joins asks for nothing")
	}
}

func TestSilentHeadsCountNoMore(t *testing.T) {
	a, b, cs := NewPicker(1), NewPicker(2), others(1)
	a.Pick(query(1, 2), cs, start)
	flush(t, a, b, start)
	if c := b.Explain(query(5), cs, start.Add(toldFor+1))[0]; c.InFlight != 0 || c.Pending != 0 {
		t.Errorf("a silent head's load counts: %+v", c)
	}
	b.Lost("from")
	if c := b.Explain(query(5), cs, start)[0]; c.InFlight != 0 {
		t.Errorf("a lost head's load counts: %+v", c)
	}
}

func TestOnlyRealReplicasStay(t *testing.T) { // K12
	a, b, cs := NewPicker(1), NewPicker(2), others(3)
	serve(a, query(1, 2), cs[:1], start)
	flush(t, a, b, start)
	b.Keep(nil, start.Add(2*unlistedFor))
	if s := b.Stats(); s.Replicas != 0 || s.Blocks != 0 {
		t.Errorf("a replica that is in no catalog is remembered: %+v", s)
	}
}

func TestSnapshot(t *testing.T) {
	a, b, cs := NewPicker(1), NewPicker(2), others(4)
	where := make(map[int]int)
	for i := range 20 {
		where[i] = serve(a, query(i, 1, 2), cs, start)
	}
	mine := serve(b, query(99, 1, 2), cs, start.Add(time.Minute))
	var wire bytes.Buffer
	if err := a.Snapshot(&wire, start); err != nil {
		t.Fatal(err)
	}
	if err := b.TakeSnapshot(&wire, start.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if c := b.Explain(query(i, 1, 2), cs, start)[where[i]]; c.Warm != 1500 {
			t.Errorf("prompt %d: %d tokens are warm after the snapshot", i, c.Warm)
		}
	}
	if c := b.Explain(query(99, 1, 2), cs, start)[mine]; c.Warm != 1500 {
		t.Errorf("the snapshot took away what this head knew: %+v", c)
	}
	if err := b.TakeSnapshot(bytes.NewReader([]byte{messageVersion, 9}), start); !errors.Is(err, ErrMalformed) {
		t.Errorf("a cut snapshot: %v", err)
	}
}

func TestNoHeadsNoQueue(t *testing.T) { // K11: nothing grows where nobody listens
	p, cs := NewPicker(0), others(2)
	for i := range 100 {
		serve(p, query(i, 1), cs, start)
	}
	if msg, again := p.Flush(start); msg != nil || again != 0 || len(p.out.fresh) != 0 {
		t.Errorf("%d bytes, again after %v, %d decisions wait", len(msg), again, len(p.out.fresh))
	}
	silent := NewPicker(1)
	for i := range 3 * queued {
		serve(silent, query(i, 1), cs, start)
	}
	if n := len(silent.out.fresh); n != queued {
		t.Errorf("%d decisions wait", n)
	}
}

func TestPickerMayBeUsedAtOnce(t *testing.T) { // K9
	a, b, cs := NewPicker(1), NewPicker(2), others(4)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 200 {
				tk := a.Pick(query(worker, i, 1), cs, start)
				tk.First(start)
				tk.Cached(1500, i)
				tk.Done(start)
				if msg, _ := a.Flush(start); msg != nil {
					if _, err := b.Take("a", msg, start); err != nil {
						t.Errorf("take: %v", err)
					}
				}
				a.Keep(nil, start)
				a.Set(true, time.Hour)
				b.Explain(query(worker, i, 1), cs, start)
				_ = a.Stats()
			}
		})
	}
	all.Wait()
	if s := a.Stats(); !a.Idle() || s.Picks != 1600 {
		t.Errorf("idle %v, stats %+v", a.Idle(), s)
	}
	for _, c := range a.Explain(query(1), cs, start) {
		if c.Pending != 0 || c.InFlight != 0 {
			t.Errorf("load is left: %+v", c)
		}
	}
}
