package discovery

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestStaticSendsTheFullSetAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Static{Addrs: []string{"192.0.2.1:8771", "nonsense", "box.example:1"}, Peers: map[string]string{"box.example:1": testPeer}}
		ctx, cancel := context.WithCancel(context.Background())
		out := make(chan []Group)
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx, out) }()
		want := []Group{
			{Source: "static", Addrs: []string{"192.0.2.1:8771"}},
			{Source: "static", Peer: testPeer, Addrs: []string{"box.example:1"}},
		}
		if diff := cmp.Diff(want, <-out); diff != "" {
			t.Error(diff)
		}
		cancel()
		<-done
		select {
		case _, open := <-out:
			if !open {
				t.Error("the channel was closed")
			}
		default:
		}
	})
}

func TestStaticEndsWhenNobodyListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); Static{}.Run(ctx, make(chan []Group)) }()
		synctest.Wait()
		cancel()
		<-done
	})
}

func TestStaticAddresses(t *testing.T) {
	for addr, ok := range map[string]bool{
		"192.0.2.1:8771":       true,
		"[2001:db8::1]:8771":   true,
		"box.example:8771":     true,
		"":                     false,
		"192.0.2.1":            false,
		"box.example":          false,
		"2001:db8::1:8771":     false,
		"[2001:db8::1]":        false,
		"[2001:db8::1:8771":    false,
		"https://box:8771":     false,
		"/ip4/192.0.2.1/tcp/1": false,
	} {
		got := Static{Addrs: []string{addr}}.groups("static")
		if (len(got) == 1) != ok || ok && (got[0].Addrs[0] != addr || got[0].Source != "static" || got[0].Peer != "") {
			t.Errorf("%q: %+v", addr, got)
		}
	}
}

// TestAPeerGivenByHandIsNeverTwice, however often it stands in the setting, and keeps
// the place where it stood first.
func TestAPeerGivenByHandIsNeverTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := Static{Peers: map[string]string{"192.0.2.3:1": testPeer}}
		var want []Group
		seen := map[string]bool{}
		for _, host := range rapid.SliceOf(rapid.IntRange(0, 5)).Draw(rt, "hosts") {
			addr := fmt.Sprintf("192.0.2.%d:1", host)
			s.Addrs = append(s.Addrs, addr, "nonsense")
			if !seen[addr] {
				want = append(want, Group{Source: "dht", Peer: s.Peers[addr], Addrs: []string{addr}})
			}
			seen[addr] = true
		}
		got := s.groups("dht")
		if diff := cmp.Diff(want, got); len(want)+len(got) > 0 && diff != "" {
			rt.Error(diff)
		}
	})
}

func TestStaticIsSentOnceAndItsListIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Static{Addrs: []string{"192.0.2.1:1"}}
		ctx, cancel := context.WithCancel(t.Context())
		out, done := make(chan []Group), make(chan struct{})
		go func() { defer close(done); s.Run(ctx, out) }()
		got := <-out
		got[0].Addrs[0] = "changed"
		if s.Addrs[0] != "192.0.2.1:1" {
			t.Error("the reader changed the setting")
		}
		synctest.Wait()
		select {
		case again := <-out:
			t.Errorf("sent again: %v", again)
		default:
		}
		cancel()
		<-done
	})
}
