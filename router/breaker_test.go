package router

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

func TestABreakerOpensAfterFailuresInARowAndTriesAgain(t *testing.T) {
	var b breakers
	bad, good := Replica{Peer: "b", Model: "m"}, Replica{Peer: "c", Model: "m"}
	both := []Replica{bad, good}
	now := time.Unix(1000, 0)
	offered := func(want int, when string) {
		t.Helper()
		if got := b.admits(both, now); len(got) != want {
			t.Errorf("%s: %d of 2 may be asked, not %d", when, len(got), want)
		}
	}
	fail := func() { b.asks(bad.key(), now); b.ends(bad.key(), failed, now) }
	fail()
	fail()
	offered(2, "two failures")
	b.ends(bad.key(), worked, now)
	fail()
	fail()
	offered(2, "two failures after a success")
	fail()
	offered(1, "three in a row")
	if b.count(now) != 1 {
		t.Errorf("%d are open", b.count(now))
	}
	now = now.Add(firstBreak)
	offered(2, "its time is over")
	b.asks(bad.key(), now)
	offered(1, "one trial is out")
	b.ends(bad.key(), undecided, now)
	offered(2, "the trial decided nothing")
	fail()
	now = now.Add(firstBreak)
	offered(1, "the second time is longer")
	now = now.Add(firstBreak)
	b.asks(bad.key(), now)
	b.ends(bad.key(), worked, now)
	offered(2, "the trial went well")
	if len(b.open) != 0 {
		t.Errorf("%d are remembered", len(b.open))
	}
}

func TestAllBreakersOpenIsAsGoodAsNone(t *testing.T) {
	var b breakers
	only := Replica{Peer: "b"}
	now := time.Unix(1000, 0)
	for range breakAfter {
		b.ends(only.key(), failed, now)
	}
	if got := b.admits([]Replica{only}, now); len(got) != 1 {
		t.Error("nobody is asked at all")
	}
}

func TestWhatIsForgottenTakesNoRoom(t *testing.T) {
	var b breakers
	now := time.Unix(1000, 0)
	for i := range 1000 {
		b.ends(Replica{Slot: i}.key(), failed, now)
	}
	b.ends(Replica{Slot: 1000}.key(), failed, now.Add(forgetBreak+time.Second))
	if len(b.open) != 1 {
		t.Errorf("%d are remembered", len(b.open))
	}
}

// Many clients' mistakes never keep a replica from requests; an engine that
// fails does, and the other one answers all.
func TestBreakersJudgeReplicasNotClients(t *testing.T) {
	for name, c := range map[string]struct {
		status, opens int
	}{"a client's mistake": {400, 0}, "an engine's": {500, 1}} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				w.WriteHeader(c.status)
			}))
			t.Cleanup(bad.Close)
			n := newNode(t)
			n.catalog.set(view("m", n.serveLocally("m", bad.URL)))
			for range 2 * breakAfter {
				if resp := send(t, n, "POST", chatPath, plainBody); resp.StatusCode != c.status {
					t.Errorf("status %d", resp.StatusCode)
				}
			}
			if got := n.breakers.count(n.now()); got != c.opens {
				t.Errorf("%d breakers are open, not %d", got, c.opens)
			}
			if asked.Load() != 2*breakAfter {
				t.Errorf("the only replica was asked %d times", asked.Load())
			}
		})
	}
}
