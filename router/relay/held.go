package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// held is a socket that is read by the clock for a while. The runtime's poller
// is then to hear nothing of the bytes that come: it would be woken for each
// event, which costs more than to read it. SO_RCVLOWAT does that: the kernel
// calls a socket readable from so many bytes on, at its end and at errors, and
// a read that does not block takes what is there all the same.
//
// It is used by the one goroutine that reads the connection.
type held struct {
	raw  syscall.RawConn // nil: no such socket
	on   bool
	take func(fd uintptr) bool // of one read, made once
	p    []byte
	n    int
	err  error
}

// of takes the socket below c, if there is one.
func (h *held) of(c net.Conn) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return // the connection is closed: reading will tell
	}
	h.raw, h.take = raw, h.takeOnce
}

// hold keeps the poller from hearing of less than a buffer full of bytes.
func (h *held) hold() {
	if h.on || h.raw == nil {
		return
	}
	// An error leaves the socket as it was.
	_ = h.raw.Control(func(fd uintptr) { h.on = lowWater(fd, bufferBytes) })
}

// release has the poller hear of each byte again.
func (h *held) release() {
	if !h.on {
		return
	}
	h.on = false
	_ = h.raw.Control(func(fd uintptr) { lowWater(fd, 1) })
}

func lowWater(fd uintptr, n int) bool {
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) == nil
}

// read is the read of a held socket. One that finds nothing releases it before
// it waits.
func (h *held) read(p []byte) (int, error) {
	h.p = p
	err := h.raw.Read(h.take)
	h.p = nil
	switch {
	case err != nil:
		return 0, err
	case h.err != nil:
		return 0, os.NewSyscallError("read", h.err)
	case h.n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return h.n, nil
}

// takeOnce reads what is there. False: there is nothing, and the poller is to
// wait. What came since the read is told by the change of the option.
func (h *held) takeOnce(fd uintptr) bool {
	for {
		h.n, h.err = unix.Read(int(fd), h.p)
		if errors.Is(h.err, unix.EINTR) {
			continue
		}
		if !errors.Is(h.err, unix.EAGAIN) {
			return true
		}
		if h.on {
			h.on = false
			lowWater(fd, 1)
		}
		return false
	}
}
