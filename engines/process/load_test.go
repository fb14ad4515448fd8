package process

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"llmgw/mesh/catalog"
)

// TestReplicaTellsItsLoad: what the engine says of its queue and its cache is in
// the replica's status, and gone when the work is.
func TestReplicaTellsItsLoad(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1,"tokens":100000,"interval_ms":1,"slots":2,"cache_tokens":200000}`, nil)
	got := r.ready()
	if got.Waiting != 0 || got.AtOnce != 0 || got.KVUse != 0 {
		t.Errorf("before any request: %+v", got)
	}
	r.until("it told its cache", func() bool { return r.Status()[0].KVTokens > 0 })
	if n := r.Status()[0].KVTokens; n < 175_000 || n > 200_000 {
		t.Errorf("its cache has %d tokens", n)
	}
	target, release, err := r.Acquire("org/sim:1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 5)
	for range cap(done) {
		go func() {
			_, err := ask(ctx, target, `{"prompt":"x"}`)
			done <- err
		}()
	}
	r.until("three of five wait", func() bool {
		s := r.Status()[0]
		return s.Waiting == 3 && s.AtOnce == 2 && s.KVUse > 0
	})
	cancel()
	for range cap(done) {
		<-done
	}
	release()
	r.until("nothing waits", func() bool {
		s := r.Status()[0]
		return s.Waiting == 0 && s.AtOnce == 0 && s.KVUse == 0
	})
}

// TestReplicaTellsItsCache follows the engine's events, those included that came
// before a daemon that comes back.
func TestReplicaTellsItsCache(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1,"tokens":1,"cache_tokens":1600}`, nil)
	r.ready()
	target, release, err := r.Acquire("org/sim:1")
	if err != nil {
		t.Fatal(err)
	}
	fill := func(from int) {
		for i := range 5 {
			body := fmt.Sprintf(`{"prompt":%q}`, strings.Repeat(fmt.Sprintf("%04d", from+i), 480))
			if _, err := ask(t.Context(), target, body); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Three prompts of 480 tokens fit, and one of them goes for a fourth.
	full := func() catalog.ReplicaStatus {
		from := 0
		r.until("it told how much a full cache holds", func() bool {
			fill(from)
			from += 5
			n := r.Status()[0].KVTokens
			return n > 1300 && n <= 3*480 // not what it was made for
		})
		return r.Status()[0]
	}
	if got := full(); got.Cleared != 0 {
		t.Errorf("%+v", got)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target.URL+"/reset_prefix_cache", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+target.Key)
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res, err)
	}
	_ = res.Body.Close()
	r.until("it was emptied", func() bool { return r.Status()[0].Cleared == 1 && r.pidfile().Cleared == 1 })
	release()
	r.reopen()
	r.recover()
	if n := r.Status()[0].Cleared; n != 1 {
		t.Errorf("a daemon that comes back tells of %d times, so that heads forget the cache", n)
	}
	if target, release, err = r.Acquire("org/sim:1"); err != nil {
		t.Fatal(err)
	}
	defer release()
	if got := full(); got.Cleared != 1 || !got.Adopted {
		t.Errorf("after the daemon came back: %+v", got)
	}
}

func TestCoarse(t *testing.T) {
	for n, want := range map[int64]int64{0: 0, 1: 1, 15: 15, 16: 16, 17: 16, 31: 30, 1000: 960, 1 << 40: 1 << 40} {
		if got := coarse(n); got != want {
			t.Errorf("coarse(%d) = %d, want %d", n, got, want)
		}
	}
}
