package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// socket is a connection as to an engine, and the engine's end of it.
func socket(t *testing.T) (*engineConn, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	c := &engineConn{Conn: ours, engines: NewEngines(quick())}
	c.held.of(ours)
	return c, theirs.(*net.TCPConn)
}

func TestHeldSocketGivesWhatIsThere(t *testing.T) {
	c, theirs := socket(t)
	c.held.hold()
	if !c.held.on {
		t.Fatal("the socket is not held")
	}
	say(theirs, "one", "two")
	got := make([]byte, 6)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "onetwo" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestHeldSocketIsReleasedBeforeItWaits(t *testing.T) {
	c, theirs := socket(t)
	for range 100 {
		c.held.hold()
		go say(theirs, "x") // before, while or after the read finds nothing
		var one [1]byte
		if n, err := c.Read(one[:]); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
}

func TestHeldSocketTellsItsEnd(t *testing.T) {
	var one [1]byte
	for name, c := range map[string]struct {
		do   func(c *engineConn, theirs *net.TCPConn) error
		want error
	}{
		"end": {func(_ *engineConn, theirs *net.TCPConn) error { return theirs.CloseWrite() }, io.EOF},
		"reset": {func(_ *engineConn, theirs *net.TCPConn) error {
			return errors.Join(theirs.SetLinger(0), theirs.Close())
		}, nil},
		"ours":     {func(c *engineConn, _ *net.TCPConn) error { return c.Reset() }, net.ErrClosed},
		"deadline": {func(c *engineConn, _ *net.TCPConn) error { return c.SetReadDeadline(time.Now().Add(time.Millisecond)) }, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			conn, theirs := socket(t)
			conn.held.hold()
			failed := make(chan error, 1)
			go func() { failed <- c.do(conn, theirs) }()
			n, err := conn.Read(one[:])
			if n != 0 || err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%d, %v", n, err)
			}
			if c.want == os.ErrDeadlineExceeded && !IsTimeout(err) {
				t.Errorf("%v is no timeout", err)
			}
			if err := <-failed; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWhatIsNoSocketIsNotHeld(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	c := &engineConn{Conn: ours}
	c.held.of(ours)
	c.held.hold()
	go say(theirs, "x")
	var one [1]byte
	if n, err := c.Read(one[:]); n != 1 || err != nil || c.held.on {
		t.Errorf("%d, %v, held %v", n, err, c.held.on)
	}
	c.held.release()
}
