package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// echo answers each line with the same line, until the box is closed.
func echo(t *testing.T, b *Box, network, address string) {
	t.Helper()
	ln, err := b.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
}

// ask connects from a box and sends a line; the error says what failed.
func ask(b *Box, address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := b.Dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	return say(c, "hello")
}

func say(c net.Conn, word string) error {
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := fmt.Fprintln(c, word); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && line != word+"\n" {
		return fmt.Errorf("heard %q", line)
	}
	return err
}

func TestBoxesReachEachOther(t *testing.T) {
	l := New(t)
	a, b := l.Box("a"), l.Box("b")
	echo(t, b, "tcp", "0.0.0.0:7")
	echo(t, b, "tcp6", "[::]:77")
	for name, address := range map[string]string{
		"IPv4":       net.JoinHostPort(b.IP().String(), "7"),
		"IPv6":       net.JoinHostPort(b.IP6().String(), "77"),
		"link-local": net.JoinHostPort(b.linkLocal()+"%eth0", "77"),
	} {
		if err := ask(a, address); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := ask(b, "127.0.0.1:7"); err != nil {
		t.Errorf("own loopback: %v", err)
	}
	if err := ask(a, "127.0.0.1:7"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("the loopback of another box answered with %v", err)
	}
}

func TestTheMachineItselfSeesNoBox(t *testing.T) {
	before, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	l := New(t)
	b := l.Box("b")
	echo(t, b, "tcp", "0.0.0.0:7")
	after, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if len(after) != len(before) {
		t.Errorf("the machine's interfaces went from %v to %v", before, after)
	}
}

func TestCutIsSilentAndHeals(t *testing.T) {
	for name, cut := range map[string]func(a, b *Box){
		"cut":             func(_, b *Box) { b.Cut() },
		"unplugged":       func(_, b *Box) { b.Unplug() },
		"asker is mute":   func(a, _ *Box) { a.Mute() },
		"asker is deaf":   func(a, _ *Box) { a.Deafen() },
		"pair, one way":   func(a, b *Box) { a.CutTo(b) },
		"pair, other way": func(a, b *Box) { b.CutTo(a) },
		"cut, unplugged":  func(_, b *Box) { b.Cut(); b.Unplug() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New(t)
			a, b := l.Box("a"), l.Box("b")
			echo(t, b, "tcp", "0.0.0.0:7")
			address := net.JoinHostPort(b.IP().String(), "7")
			held, err := a.Dial(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			if err := say(held, "before"); err != nil {
				t.Fatal(err)
			}
			cut(a, b)
			if err := ask(a, address); !os.IsTimeout(err) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a new connection ended with %v, want a time-out", err)
			}
			a.Heal()
			b.Heal()
			a.HealTo(b)
			b.HealTo(a)
			Eventually(t, 10*time.Second, "a reaches b again", func() (bool, string) {
				err := ask(a, address)
				return err == nil, fmt.Sprint(err)
			})
			// What was open before the cut is still open after it.
			if err := say(held, "after"); err != nil {
				t.Errorf("the held connection: %v", err)
			}
		})
	}
}

// datagrams counts what arrives at a box's UDP port.
func datagrams(t *testing.T, b *Box) (count func() int) {
	t.Helper()
	var pc net.PacketConn
	err := b.ns.do(func() (err error) {
		pc, err = net.ListenUDP("udp4", &net.UDPAddr{Port: 9})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	got := make(chan struct{}, 10_000)
	go func() {
		buf := make([]byte, 100)
		for {
			if _, _, err := pc.ReadFrom(buf); err != nil {
				return
			}
			got <- struct{}{}
		}
	}()
	return func() int { return len(got) }
}

// shout sends one datagram; that nothing carries it is no error.
func shout(t *testing.T, from, to *Box) {
	t.Helper()
	c, err := from.Dial(t.Context(), "udp4", net.JoinHostPort(to.IP().String(), "9"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.Write([]byte("x"))
}

func TestOneWayCutsPassTheOtherWay(t *testing.T) {
	for name, tc := range map[string]struct {
		cut    func(a, b *Box)
		passes bool // from b to a; from a to b never
	}{
		"mute":        {cut: func(a, _ *Box) { a.Mute() }, passes: true},
		"deaf":        {cut: func(_, b *Box) { b.Deafen() }, passes: true},
		"pair":        {cut: func(a, b *Box) { a.CutTo(b) }, passes: true},
		"pair, whole": {cut: func(a, b *Box) { a.CutTo(b); b.CutTo(a) }, passes: false},
		"cut":         {cut: func(a, _ *Box) { a.Cut() }, passes: false},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(t)
			a, b := l.Box("a"), l.Box("b")
			atA, atB := datagrams(t, a), datagrams(t, b)
			Eventually(t, 5*time.Second, "datagrams pass both ways", func() (bool, string) {
				shout(t, a, b)
				shout(t, b, a)
				return atA() > 0 && atB() > 0, fmt.Sprint(atA(), " ", atB())
			})
			tc.cut(a, b)
			hadA, hadB := atA(), atB()
			for range 20 {
				shout(t, a, b)
				shout(t, b, a)
				time.Sleep(5 * time.Millisecond)
			}
			if atB() != hadB {
				t.Errorf("%d datagrams passed the cut", atB()-hadB)
			}
			if passed := atA() > hadA; passed != tc.passes {
				t.Errorf("the other way: passed %v, want %v", passed, tc.passes)
			}
		})
	}
}

func TestPairCutSparesTheThird(t *testing.T) {
	l := New(t)
	a, b, c := l.Box("a"), l.Box("b"), l.Box("c")
	echo(t, b, "tcp", "0.0.0.0:7")
	echo(t, c, "tcp", "0.0.0.0:7")
	a.CutTo(b)
	b.CutTo(a)
	if err := ask(a, net.JoinHostPort(b.IP().String(), "7")); err == nil {
		t.Error("a still reaches b")
	}
	for _, from := range []*Box{a, b} {
		if err := ask(from, net.JoinHostPort(c.IP().String(), "7")); err != nil {
			t.Errorf("%s no longer reaches c: %v", from.Name, err)
		}
	}
}

func TestLoseDropsSomeAndNotAll(t *testing.T) {
	l := New(t)
	a, b := l.Box("a"), l.Box("b")
	atA, atB := datagrams(t, a), datagrams(t, b)
	const sent = 400
	hear := func() (int, int) {
		had, hadB := atA(), atB()
		for range sent {
			shout(t, a, b)
			shout(t, b, a)
		}
		last := -1
		Eventually(t, 5*time.Second, "the last datagram is through", func() (bool, string) {
			now := atA() + atB()
			quiet := now == last
			last = now
			return quiet, fmt.Sprint(now)
		})
		return atA() - had, atB() - hadB
	}
	if toA, toB := hear(); toA < sent-20 || toB < sent-20 { // a full buffer may drop some
		t.Errorf("before: %d and %d of %d datagrams came", toA, toB, sent)
	}
	b.Lose(30)
	toA, toB := hear()
	if low, high := sent*50/100, sent*90/100; toA < low || toA > high || toB < low || toB > high {
		t.Errorf("with 30 %% lost %d and %d of %d datagrams came", toA, toB, sent)
	}
	b.Heal()
	if toA, toB := hear(); toA < sent-20 || toB < sent-20 {
		t.Errorf("healed: %d and %d of %d datagrams came", toA, toB, sent)
	}
}

func TestShapeLimitsTheLink(t *testing.T) {
	l := New(t)
	a, b := l.Box("a"), l.Box("b")
	echo(t, b, "tcp", "0.0.0.0:7")
	c, err := a.Dial(t.Context(), "tcp", net.JoinHostPort(b.IP().String(), "7"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b.Shape("tbf rate 4mbit burst 16kb latency 100ms")
	const size = 250_000 // bytes: half a second at 4 Mbit/s
	began := time.Now()
	go func() { _, _ = c.Write(make([]byte, size)) }()
	if _, err := io.CopyN(io.Discard, c, size); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("%d bytes took %v over a link of 4 Mbit/s", size, took)
	}
}

// TestMulticastPasses is what mDNS needs: a member of the group on one box
// hears a packet sent on another, on both families, from the first on.
func TestMulticastPasses(t *testing.T) {
	for _, tc := range []struct{ network, group string }{
		{"udp4", "224.0.0.251:5353"},
		{"udp6", "[ff02::fb%eth0]:5353"},
	} {
		t.Run(tc.network, func(t *testing.T) {
			l := New(t)
			a, b := l.Box("a"), l.Box("b")
			group, err := net.ResolveUDPAddr(tc.network, tc.group)
			if err != nil {
				t.Fatal(err)
			}
			var listener *net.UDPConn
			err = b.ns.do(func() error {
				eth0, err := net.InterfaceByName("eth0")
				if err != nil {
					return err
				}
				listener, err = net.ListenMulticastUDP(tc.network, eth0, group)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			var sender net.Conn
			err = a.ns.do(func() (err error) {
				sender, err = net.Dial(tc.network, tc.group)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer sender.Close()
			if _, err := sender.Write([]byte("who is there")); err != nil {
				t.Fatal(err)
			}
			_ = listener.SetReadDeadline(time.Now().Add(3 * time.Second))
			buf := make([]byte, 100)
			n, from, err := listener.ReadFromUDP(buf)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("heard %q from %v", buf[:n], from)
		})
	}
}

func TestRunIsInsideTheBox(t *testing.T) {
	l := New(t)
	b := l.Box("b")
	b.Env = []string{"WORD=plain"}
	r, err := b.RunInput(t.Context(), "input", "sh", "-c", `ip -4 -o addr show dev eth0; echo "$WORD"; cat; echo oops >&2; exit 7`)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{b.IP().String() + "/24", "plain", "input"} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("stdout lacks %q:\n%s", want, r)
		}
	}
	if r.Code != 7 || r.Stderr != "oops\n" {
		t.Errorf("got:\n%s", r)
	}
	if _, err := b.Run(t.Context(), "no-such-program"); err == nil {
		t.Error("a missing program was run")
	}
}

func TestPauseFreezesTheWholeBox(t *testing.T) {
	l := New(t)
	b := l.Box("b")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = b.Run(ctx, "sleep", "1000") }()
	p := b.Await("1000", 5*time.Second)
	state := func(want byte) func() (bool, string) {
		return func() (bool, string) {
			p, err := ReadProcess(p.PID)
			return err == nil && p.State == want, string(p.State)
		}
	}
	b.Pause()
	Eventually(t, 2*time.Second, "the process is stopped", state('T'))
	b.Resume()
	Eventually(t, 2*time.Second, "the process goes on", state('S'))
	if err := b.Signal(os.Getpid(), unix.SIGCONT); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a process outside the box was signalled: %v", err)
	}
	if err := b.Signal(p.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-ended
}

func TestListenPortsOfAProcess(t *testing.T) {
	l := New(t)
	b := l.Box("b")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _ = b.Run(ctx, "python3", "-m", "http.server", "--bind", "127.0.0.1", "8123") }()
	var ports []int
	Eventually(t, 20*time.Second, "a server listens", func() (bool, string) {
		for _, p := range b.Processes("http.server") {
			if got, err := p.ListenPorts(); err == nil && len(got) > 0 {
				ports = got
			}
		}
		return len(ports) > 0, fmt.Sprint(ports)
	})
	if !slices.Equal(ports, []int{8123}) {
		t.Errorf("ports %v", ports)
	}
}

func TestPythonClientRunsOnABox(t *testing.T) {
	l := New(t)
	b := l.Box("b")
	r, err := b.Run(seconds(t, 60), Python(t), "-c", "import openai; print(openai.__version__)")
	if err != nil || r.Out() != openaiVersion {
		t.Errorf("%v\n%s", err, r)
	}
}
