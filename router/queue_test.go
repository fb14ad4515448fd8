package router

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"llmgw/router/openai"
	"llmgw/router/relay"

	"pgregory.net/rapid"
)

// slots is room that a test gives and takes.
type slots struct{ free atomic.Int64 }

func (s *slots) room() int { return int(s.free.Load()) }

func TestTheKeyThatGotLeastGoesFirst(t *testing.T) {
	var q queue
	var s slots
	now := time.Unix(1000, 0)
	names := map[*waiter]string{}
	enter := func(name, key string, b band) {
		now = now.Add(time.Millisecond)
		p, w := q.enter("m", key, b, now, s.room)
		if p != nil || w == nil {
			t.Fatalf("%s does not wait", name)
		}
		names[w] = name
	}
	enter("crowd 1", "crowd", bandNormal)
	enter("crowd 2", "crowd", bandNormal)
	enter("crowd 3", "crowd", bandNormal)
	enter("low", "low", bandLow)
	enter("single", "single", bandNormal)
	enter("high", "crowd", bandHigh)
	q.charge("crowd", openai.Usage{Input: 100, Cached: 90, Output: 10})
	var order []string
	for len(names) > 0 {
		s.free.Store(1)
		q.advance("m")
		s.free.Store(0)
		for w, name := range names {
			select {
			case <-w.ready:
				order = append(order, name)
				delete(names, w)
				(&pass{q: &q, model: "m"}).end()
			default:
			}
		}
	}
	want := []string{"high", "single", "crowd 1", "crowd 2", "crowd 3", "low"}
	if !slices.Equal(order, want) {
		t.Errorf("order %v, not %v", order, want)
	}
	if len(q.lines) != 0 || q.length() != 0 {
		t.Errorf("%d lines, %d waiting are left", len(q.lines), q.length())
	}
}

func TestAKeyThatComesBackHasNoCredit(t *testing.T) {
	var q queue
	var s slots
	q.enter("m", "busy", bandNormal, time.Unix(1, 0), s.room)
	q.charge("busy", openai.Usage{Output: 1000})
	q.enter("m", "new", bandNormal, time.Unix(2, 0), s.room)
	if q.served["new"] != q.served["busy"] {
		t.Errorf("the new one begins at %d, the others are at %d", q.served["new"], q.served["busy"])
	}
}

// What one request has no room for, another may.
func TestWhoHasRoomIsNotHeldByWhoHasNone(t *testing.T) {
	var q queue
	var full, free slots
	now := time.Unix(1000, 0)
	_, stuck := q.enter("m", "eu", bandNormal, now, full.room)
	_, waits := q.enter("m", "us", bandNormal, now.Add(time.Second), free.room)
	if stuck == nil || waits == nil {
		t.Fatal("there is room")
	}
	free.free.Store(1)
	q.poll("m", now.Add(time.Minute))
	select {
	case <-waits.ready:
	default:
		t.Error("who has room waits behind who has none")
	}
	select {
	case <-stuck.ready:
		t.Error("who has no room was let through")
	default:
	}
	(&pass{q: &q, model: "m"}).end()
	if p, _ := q.enter("m", "us", bandNormal, now.Add(2*time.Second), free.room); p == nil {
		t.Error("who comes and has room waits behind who has none")
	}
	q.leave("m", stuck)
}

// Whatever comes, leaves and gets room: nobody is let through beyond the room,
// nobody waits while there is room, and nothing is left in the end.
func TestQueueLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var s slots
		var passes []*pass
		var waiting []*waiter
		used := func() int { return len(passes) }
		room := func() int { return s.room() - used() }
		collect := func() {
			waiting = slices.DeleteFunc(waiting, func(w *waiter) bool {
				select {
				case <-w.ready:
					// It is counted at a replica, which the room then lacks.
					p := &pass{q: &q, model: "m"}
					p.end()
					passes = append(passes, p)
					return true
				default:
					return false
				}
			})
		}
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
				p, w := q.enter("m", key, band(rapid.IntRange(-1, 1).Draw(t, "band")), time.Unix(int64(len(waiting)), 0), room)
				if p != nil {
					p.end()
					passes = append(passes, p)
				} else {
					waiting = append(waiting, w)
				}
			},
			"leave": func(t *rapid.T) {
				if len(waiting) > 0 {
					k := rapid.IntRange(0, len(waiting)-1).Draw(t, "who")
					q.leave("m", waiting[k])
					waiting = slices.Delete(waiting, k, k+1)
					collect()
				}
			},
			"done": func(*rapid.T) {
				if len(passes) > 0 {
					passes = passes[1:]
				}
				q.advance("m")
				collect()
			},
			"room": func(t *rapid.T) {
				s.free.Store(int64(rapid.IntRange(used(), used()+3).Draw(t, "room")))
				q.advance("m")
				collect()
			},
			"": func(t *rapid.T) {
				if q.length() != len(waiting) {
					t.Fatalf("%d wait, not %d", q.length(), len(waiting))
				}
				if used() > s.room() {
					t.Fatalf("%d were let through, there is room for %d", used(), s.room())
				}
				if len(waiting) > 0 && room() > 0 {
					t.Fatalf("%d wait although there is room for %d", len(waiting), room())
				}
			},
		})
		for _, w := range slices.Clone(waiting) {
			q.leave("m", w)
		}
		if len(q.lines) != 0 || q.waiting != 0 {
			t.Fatalf("%d lines are left", len(q.lines))
		}
	})
}

func TestRequestsBeyondTheSlotsWaitInTheLine(t *testing.T) {
	var running, most atomic.Int64
	entry, _ := pair(t, false, func(w http.ResponseWriter, _ *http.Request) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(2 * time.Millisecond)
		running.Add(-1)
		event(w, done)
	})
	v, _ := entry.catalog.Resolve("m")
	v.Replicas[0].Slots = 2
	entry.catalog.set(v)
	var clients sync.WaitGroup
	for range 40 {
		clients.Go(func() {
			if got := text(t, send(t, entry, "POST", chatPath, chatBody)); got != done {
				t.Errorf("got %q", got)
			}
		})
	}
	clients.Wait()
	if most.Load() > 3 { // two slots, and one that the engine has in hand
		t.Errorf("%d at once at an engine with 2 slots", most.Load())
	}
	if entry.queue.length() != 0 {
		t.Errorf("%d still wait", entry.queue.length())
	}
}

func TestAStreamIsToldItsPlaceAndAPatienceEnds(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		change func(*http.Request)
		status int
		says   string
		took   time.Duration
	}{
		"JSON":      {plainBody, func(*http.Request) {}, 429, `"code":"rate_limit_exceeded"`, time.Minute},
		"a stream":  {chatBody, func(*http.Request) {}, 200, ": queued: 1 of 1\n\n", time.Minute},
		"low":       {plainBody, func(r *http.Request) { r.Header.Set(priorityHeader, "low") }, 429, "after 10m0s", 10 * time.Minute},
		"flex tier": {strings.Replace(chatBody, "{", `{"service_tier":"flex",`, 1), func(*http.Request) {}, 200, "data: {\"error\"", 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := &fakeCatalog{}
				fake.set(view("m", Replica{Peer: "b", Slots: 1}))
				r := newPatient(fake, scripted{"b": {time.Hour, ""}}, func(cfg *Config) {
					cfg.Limits = relay.DefaultLimits()
					cfg.Limits.FirstByte = time.Hour // for those in the slots
				})
				leave := make([]context.CancelFunc, 2) // a slot, and the engine's own queue
				for k := range leave {
					ctx, cancel := context.WithCancel(t.Context())
					leave[k] = cancel
					go recovered(func() { ask(ctx, r, plainBody) })
					synctest.Wait()
				}
				began := time.Now()
				w := ask(t.Context(), r, c.body, c.change)
				if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
					t.Errorf("status %d, body %q", w.Code, w.Body)
				}
				if took := time.Since(began); took < c.took || took > c.took+time.Second {
					t.Errorf("waited %v", took)
				}
				for _, cancel := range leave {
					cancel()
				}
				synctest.Wait()
			})
		})
	}
}

func TestANodeHasABoundOfRequests(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	entry, _ := pair(t, false, func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-leave
		event(w, done)
	})
	entry.SetBounds(1, DefaultQueueTime, DefaultLoadWait)
	first := make(chan string)
	go func() { first <- text(t, send(t, entry, "POST", chatPath, chatBody)) }()
	<-entered
	resp := send(t, entry, "POST", chatPath, chatBody)
	if e := wantError(t, resp, 503, "overloaded"); !strings.Contains(e.Error.Message, "1 requests") || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("%+v", e)
	}
	if resp := send(t, entry, "GET", "/v1/models", ""); resp.StatusCode != 200 {
		t.Errorf("other requests get status %d", resp.StatusCode)
	}
	close(leave)
	if got := <-first; got != done {
		t.Errorf("the first got %q", got)
	}
}
