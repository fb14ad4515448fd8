package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tcpStream has a mesh stream's ways of ending on a TCP connection.
type tcpStream struct {
	*net.TCPConn
	peer string
}

func (s tcpStream) Peer() string { return s.peer }

// Reset lets the other side fail in reading and writing, as a mesh stream does.
func (s tcpStream) Reset() error {
	if err := s.SetLinger(0); err != nil {
		return err
	}
	return s.TCPConn.Close()
}

func streams(t *testing.T) (entry, holder tcpStream) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	defer func() { _ = l.Close() }()
	a, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	b, err := l.AcceptTCP()
	if err != nil {
		t.Fatalf("accept: %v", err)
	}
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	return tcpStream{a, "holder"}, tcpStream{b, "entry"}
}

func hop() Hop {
	return Hop{Model: "org/m", Slot: 1, Epoch: 1 << 63, Digest: "sha256:aa", Key: "k", RequestID: "req-1"}
}

// holding serves one stream in the background and tells when it is through.
func holding(s Stream, serve func(*Inbound, error)) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		in, err := Accept(s, quick())
		serve(in, err)
	}()
	return done
}

func TestHopArrivesWithTheRequest(t *testing.T) {
	entry, holder := streams(t)
	var got Hop
	var body, path, odd string
	done := holding(holder, func(in *Inbound, err error) {
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		text, err := io.ReadAll(in.Body(time.Minute))
		if err != nil {
			t.Errorf("read body: %v", err)
		}
		got, body, path, odd = in.Hop, string(text), in.Path, in.Header.Get(HeaderModel)
		_, cancel := in.Watch(t.Context())
		defer cancel(nil)
		if err := errors.Join(in.Begin(200, http.Header{"X-A": {"1"}}, -1), in.Write([]byte("hel")), in.Write(nil), in.Write([]byte("lo")), in.Finish()); err != nil {
			t.Errorf("answer: %v", err)
		}
	})
	x, err := StartRemote(t.Context(), entry, call(`{"a":1}`), hop(), quick(), nil)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	if text := readBody(t, x); text != "hello" || x.Header.Get("X-A") != "1" {
		t.Errorf("body %q, header %v", text, x.Header)
	}
	x.Close()
	<-done
	if diff := cmp.Diff(hop(), got); diff != "" {
		t.Errorf("hop (-want +got):\n%s", diff)
	}
	if body != `{"a":1}` || path != "/v1/chat/completions" || odd != "" {
		t.Errorf("body %q, path %q, internal header for the engine: %q", body, path, odd)
	}
}

func TestRefusalOvertakesALongBody(t *testing.T) {
	for name, size := range map[string]int{"short": 10, "long": 16 << 20} {
		t.Run(name, func(t *testing.T) {
			entry, holder := streams(t)
			done := holding(holder, func(in *Inbound, err error) {
				if err != nil {
					t.Errorf("accept: %v", err)
					return
				}
				in.Refuse(&Refusal{Kind: RefusedBusy, Detail: "all slots"})
			})
			_, err := StartRemote(t.Context(), entry, call(strings.Repeat("x", size)), hop(), quick(), nil)
			var refusal *Refusal
			if !errors.As(err, &refusal) || refusal.Kind != RefusedBusy || refusal.Detail != "all slots" {
				t.Errorf("error is %v", err)
			}
			<-done
		})
	}
}

func TestRefusalAfterTheBodyIsRead(t *testing.T) {
	entry, holder := streams(t)
	done := holding(holder, func(in *Inbound, err error) {
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		if _, err := io.Copy(io.Discard, in.Body(time.Minute)); err != nil {
			t.Errorf("read body: %v", err)
		}
		ctx, cancel := in.Watch(t.Context())
		defer cancel(nil)
		in.Refuse(&Refusal{Kind: RefusedEngine})
		if ctx.Err() == nil {
			t.Error("the watch goes on after the stream's end")
		}
	})
	_, err := StartRemote(t.Context(), entry, call(strings.Repeat("x", 1<<20)), hop(), quick(), nil)
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Kind != RefusedEngine {
		t.Errorf("error is %v", err)
	}
	<-done
}

func TestWatchEndsWhenTheSenderLeaves(t *testing.T) {
	for name, leave := range map[string]func(tcpStream) error{
		"by reset": tcpStream.Reset, "by its end": tcpStream.CloseWrite, "in order": func(s tcpStream) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			entry, holder := streams(t)
			done := holding(holder, func(in *Inbound, err error) {
				if err != nil {
					t.Errorf("accept: %v", err)
					return
				}
				if _, err := io.Copy(io.Discard, in.Body(time.Minute)); err != nil {
					t.Errorf("read body: %v", err)
				}
				ctx, cancel := in.Watch(t.Context())
				defer cancel(nil)
				if err := leave(entry); err != nil {
					t.Errorf("leave: %v", err)
				}
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), ErrClientGone) {
					t.Errorf("cause is %v", context.Cause(ctx))
				}
				in.Abort()
			})
			own := *call("{}")
			own.Host, own.Extra = remoteHost, hop().fields()
			if _, err := entry.Write(append(own.message(), own.Body...)); err != nil {
				t.Fatalf("send: %v", err)
			}
			<-done
		})
	}
}

func TestAbortShowsAsABrokenAnswer(t *testing.T) {
	entry, holder := streams(t)
	done := holding(holder, func(in *Inbound, err error) {
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		if err := errors.Join(in.Begin(200, nil, 10), in.Write([]byte("half"))); err != nil {
			t.Errorf("answer: %v", err)
		}
		in.Abort()
	})
	x, err := StartRemote(t.Context(), entry, call("{}"), hop(), quick(), nil)
	for buf := make([]byte, 16); err == nil; {
		_, err = x.Next(buf, nil)
	}
	if stage := stageOf(err); stage != StageAnswer && stage != StageFirstByte {
		t.Errorf("error is %v", err)
	}
	if x != nil {
		x.Close()
	}
	<-done
}

func TestAcceptRefusesWhatIsNoRelay(t *testing.T) {
	good := "POST /v1/completions HTTP/1.1\r\nHost: llmgw\r\nX-Llmgw-Model: m\r\nX-Llmgw-Slot: 0\r\n"
	cases := map[string]string{
		"nothing":       "",
		"no HTTP":       "\x00\x01\x02\r\n\r\n",
		"half a head":   "POST / HTTP/1.1\r\nHo",
		"no model":      "POST / HTTP/1.1\r\nHost: x\r\nX-Llmgw-Epoch: 1\r\nX-Llmgw-Slot: 0\r\nContent-Length: 0\r\n\r\n",
		"no epoch":      good + "Content-Length: 0\r\n\r\n",
		"odd epoch":     good + "X-Llmgw-Epoch: -1\r\nContent-Length: 0\r\n\r\n",
		"no length":     good + "X-Llmgw-Epoch: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"doubled fence": good + "X-Llmgw-Epoch: 1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"endless head":  good + "X-A: " + strings.Repeat("x", headBytes) + "\r\n\r\n",
	}
	for name, head := range cases {
		t.Run(name, func(t *testing.T) {
			entry, holder := streams(t)
			done := holding(holder, func(in *Inbound, err error) {
				if err == nil {
					t.Errorf("accepted %+v", in)
					in.Abort()
				}
			})
			_, _ = io.WriteString(entry, head) // a reset may come before its end
			_ = entry.CloseWrite()
			<-done
		})
	}
}

func TestSilentSenderIsGivenUp(t *testing.T) {
	cases := map[string]struct {
		says  string
		after time.Duration
	}{
		"no head":     {"POST", headTime},
		"half a body": {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Llmgw-Model: m\r\nX-Llmgw-Slot: 0\r\nX-Llmgw-Epoch: 1\r\nContent-Length: 9\r\n\r\nhalf", time.Minute},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := pipe()
				go say(theirs, c.says)
				began := time.Now()
				in, err := Accept(ours, quick())
				if err == nil {
					_, err = io.ReadAll(in.Body(quick().Idle))
					in.Abort()
				}
				if took := time.Since(began); err == nil || took != c.after {
					t.Errorf("%v after %v, want %v", err, took, c.after)
				}
				_ = theirs.Close()
			})
		})
	}
}

func TestRefusedSenderMayNotSendForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := pipe()
		go func() {
			c := call(strings.Repeat("x", 1000))
			c.Extra = hop().fields()
			say(theirs, string(c.message()))
			buf := make([]byte, 1024)
			for {
				// Takes the refusal, then stays and says nothing more.
				if _, err := theirs.Read(buf); err != nil {
					return
				}
			}
		}()
		in, err := Accept(ours, quick())
		if err != nil {
			t.Fatalf("accept: %v", err)
		}
		began := time.Now()
		in.Refuse(&Refusal{Kind: RefusedNotHere})
		if took := time.Since(began); took != lingerTime || *ours.how != "reset" {
			t.Errorf("stream was %s after %v", *ours.how, took)
		}
	})
}

func TestRefusalsTravelAsStatus(t *testing.T) {
	for kind, want := range map[RefusalKind]int{
		RefusedStale: 409, RefusedNotHere: 421, RefusedBusy: 429, RefusedStopping: 503, RefusedEngine: 502, RefusedInvalid: 400,
	} {
		if got := (&Refusal{Kind: kind}).Status(); got != want {
			t.Errorf("%s: %d", kind, got)
		}
	}
}

// FuzzAccept feeds a holder's first bytes: whatever they are, it ends.
func FuzzAccept(f *testing.F) {
	c := call("{}")
	c.Extra = hop().fields()
	f.Add(append(c.message(), '{', '}'))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, head []byte) {
		ours, theirs := pipe()
		go func() {
			say(theirs, string(head))
			_ = theirs.Close()
		}()
		in, err := Accept(ours, quick())
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, in.Body(time.Second))
		in.Abort()
	})
}
