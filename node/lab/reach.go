package lab

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"llmgw/node"
	"llmgw/ui"
)

// clockVariable sets a daemon's wall clock off for a whole run; Binary is built
// to honour it.
const clockVariable = "LLMGW_LAB_CLOCK_OFFSET"

// SetClock sets how far the box's clock is off from its next start on.
func (b *Box) SetClock(offset time.Duration) {
	b.Env = []string{clockVariable + "=" + offset.String()}
}

// Admin speaks the admin API of the box's daemon from the test's own process,
// which costs no program start. It may be used from many goroutines and across
// restarts of the daemon.
func (b *Box) Admin() *ui.Client {
	b.tb.Helper()
	path, err := node.SocketPath(b.StateDir())
	if err != nil {
		b.tb.Fatalf("admin socket of box %s: %v", b.Name, err)
	}
	client := ui.NewClient(path)
	b.tb.Cleanup(client.Close)
	return client
}

// FreshClient is Client with a connection of its own for each request, so that
// no request meets the leftovers of an earlier one.
func (b *Box) FreshClient() *http.Client {
	c := b.Client()
	c.Transport.(*http.Transport).DisableKeepAlives = true
	return c
}

// Crash ends every process of the box at once, as a loss of power does.
func (b *Box) Crash() {
	b.tb.Helper()
	Eventually(b.tb, endTimeout, "nothing runs on box "+b.Name, func() (bool, string) {
		left := b.Processes("")
		for _, p := range left {
			_ = b.Signal(p.PID, unix.SIGKILL)
		}
		return len(left) == 0, ""
	})
	if b.daemon != nil {
		<-b.daemon.done
	}
}

// Wipe removes the state directory of a box on which nothing runs.
func (b *Box) Wipe() {
	b.tb.Helper()
	if b.Running() {
		b.tb.Fatalf("box %s runs: its state cannot be wiped", b.Name)
	}
	if err := os.RemoveAll(b.StateDir()); err != nil {
		b.tb.Fatalf("wipe box %s: %v", b.Name, err)
	}
}

// SmallDisk puts the state directory of a new box on a file system of its own
// with so many bytes.
func (b *Box) SmallDisk(bytes int64) {
	b.tb.Helper()
	if err := os.MkdirAll(b.StateDir(), 0o700); err != nil {
		b.tb.Fatalf("small disk of box %s: %v", b.Name, err)
	}
	if err := unix.Mount("tmpfs", b.StateDir(), "tmpfs", 0, sizeOption(bytes)); err != nil {
		b.tb.Fatalf("small disk of box %s: %v", b.Name, err)
	}
}

// FillDisk takes all that is free where the state directory lies.
func (b *Box) FillDisk() {
	b.tb.Helper()
	f, err := os.Create(b.ballast())
	if err != nil {
		b.tb.Fatalf("fill disk of box %s: %v", b.Name, err)
	}
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
}

// FreeDisk undoes FillDisk.
func (b *Box) FreeDisk() {
	b.tb.Helper()
	if err := os.Remove(b.ballast()); err != nil && !os.IsNotExist(err) {
		b.tb.Fatalf("free disk of box %s: %v", b.Name, err)
	}
}

func (b *Box) ballast() string { return filepath.Join(b.StateDir(), "ballast") }

func sizeOption(bytes int64) string { return fmt.Sprintf("size=%d", bytes) }
