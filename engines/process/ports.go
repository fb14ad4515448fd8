package process

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// portQuarantine keeps a port unused after an engine left it, so that a late
// client of the old engine does not meet the new one.
const portQuarantine = 30 * time.Second

// errNoPort means that every port of the range is leased or held by others.
var errNoPort = errors.New("no free port for an engine")

// ports leases loopback ports out of a bounded range.
type ports struct {
	first, last int
	free        func(port int) bool // asks the system

	mu       sync.Mutex
	next     int
	leased   map[int]bool
	released map[int]time.Time
}

func newPorts(r [2]int, free func(int) bool) (*ports, error) {
	if r[0] < 1 || r[1] > 65535 || r[0] > r[1] {
		return nil, fmt.Errorf("open supervisor: port range %d-%d is not valid", r[0], r[1])
	}
	return &ports{
		first: r[0], last: r[1], next: r[0], free: free,
		leased: make(map[int]bool), released: make(map[int]time.Time),
	}, nil
}

// lease gives a port that is in nobody's hands. Ports in quarantine come last:
// in a small range that is better than none, and a late client has no key for
// the new engine.
func (p *ports) lease(now time.Time) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, quarantined := range []bool{false, true} {
		for range p.last - p.first + 1 {
			port := p.next
			if p.next++; p.next > p.last {
				p.next = p.first
			}
			left, used := p.released[port]
			if p.leased[port] || (used && now.Sub(left) < portQuarantine) != quarantined || !p.free(port) {
				continue
			}
			p.leased[port] = true
			delete(p.released, port)
			return port, nil
		}
	}
	return 0, fmt.Errorf("%w: %d-%d are all in use", errNoPort, p.first, p.last)
}

// hold marks a port that an adopted engine has.
func (p *ports) hold(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leased[port] = true
}

func (p *ports) release(port int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leased[port] {
		delete(p.leased, port)
		p.released[port] = now
	}
}

// systemFree asks the system by binding. Engines bind again a moment later, so
// an engine may still find the port taken; then it ends and gets another.
func systemFree(port int) bool {
	l, err := net.Listen("tcp4", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
