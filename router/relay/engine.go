package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"

	"llmgw/mesh/catalog"
)

// Target is an engine that serves a replica of this node.
type Target struct {
	URL    string // http://127.0.0.1:port
	Key    string // the engine's own key; never leaves this node
	Model  string // model ID
	Slot   int
	Epoch  uint64
	Digest string // of the weights that it holds
	Engine string
	// KeepAlive lets a connection wait for the next request. Only for servers
	// whose idle connections cost nothing: llama-server's hold a thread each
	// of a pool that is hardly larger than its number of slots.
	KeepAlive bool
	// Host is set when it is none of this node's engines but one on a machine that
	// the node sponsors; URL and Key are in there.
	Host *catalog.Provider
}

// maxIdle bounds the kept connections of one engine.
const maxIdle = 64

// Engines reaches the engines of this node and keeps connections to them
// between requests where that is allowed.
type Engines struct {
	limits Limits
	dial   func(ctx context.Context, network, address string) (net.Conn, error)

	streams atomic.Int64 // event streams that run

	mu   sync.Mutex
	idle map[string][]*engineConn // by address; last used last
}

// NewEngines makes an empty set of connections.
func NewEngines(limits Limits) *Engines {
	return &Engines{limits: limits, dial: new(net.Dialer).DialContext, idle: make(map[string][]*engineConn)}
}

// Start sends call to the engine and waits for the head of its answer. A kept
// connection that turns out to be dead costs nothing but a new one: no byte
// had come back. Errors as those of the package's Start.
func (e *Engines) Start(ctx context.Context, t Target, call *Call, wait Wait) (*Exchange, error) {
	address, err := engineAddress(t.URL)
	if err != nil {
		return nil, &BrokenError{StageConnect, err}
	}
	own := t.call(call, address)
	if conn := e.take(address); conn != nil {
		x, err := Start(ctx, conn, own, e.limits, wait)
		if err == nil || !isDead(err) {
			return x, err
		}
		e.drop(address)
	}
	conn, err := e.connect(ctx, address)
	if err != nil {
		return nil, err
	}
	conn.alive = t.KeepAlive
	return Start(ctx, conn, own, e.limits, wait)
}

// call is the request as this engine wants it.
func (t Target) call(c *Call, address string) *Call {
	own := *c
	own.Host, own.Extra = address, nil
	if t.Key != "" {
		own.Extra = append(own.Extra, "Authorization", "Bearer "+t.Key)
	}
	if !t.KeepAlive {
		own.Extra = append(own.Extra, "Connection", "close")
	}
	return &own
}

// isDead reports a connection that the engine closed while it was kept, as
// opposed to an engine that is slow.
func isDead(err error) bool {
	var broken *BrokenError
	return errors.As(err, &broken) && !IsTimeout(err)
}

func engineAddress(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", fmt.Errorf("engine address: %w", err)
	}
	if u.Scheme != "http" || u.Port() == "" {
		return "", fmt.Errorf("engine address %q is not http://host:port", raw)
	}
	return u.Host, nil
}

func (e *Engines) connect(ctx context.Context, address string) (*engineConn, error) {
	dialCtx, cancel := context.WithTimeout(ctx, e.limits.Connect)
	defer cancel()
	conn, err := e.dial(dialCtx, "tcp", address)
	if err == nil {
		c := &engineConn{Conn: conn, engines: e, address: address}
		c.held.of(conn)
		return c, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, &BrokenError{StageConnect, err}
}

func (e *Engines) take(address string) *engineConn {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.idle[address]
	if len(list) == 0 {
		return nil
	}
	conn := list[len(list)-1]
	e.idle[address] = list[:len(list)-1]
	return conn
}

func (e *Engines) put(c *engineConn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.idle == nil || len(e.idle[c.address]) >= maxIdle {
		return false
	}
	e.idle[c.address] = append(e.idle[c.address], c)
	return true
}

// drop closes the kept connections of an engine: one was dead, and all were
// made to the same process.
func (e *Engines) drop(address string) {
	e.mu.Lock()
	list := e.idle[address]
	delete(e.idle, address)
	e.mu.Unlock()
	for _, c := range list {
		_ = c.Close()
	}
}

// Close closes the kept connections; exchanges in progress go on.
func (e *Engines) Close() {
	e.mu.Lock()
	all := e.idle
	e.idle = nil
	e.mu.Unlock()
	for _, list := range all {
		for _, c := range list {
			_ = c.Close()
		}
	}
}

// engineConn is a TCP connection to an engine. TCP knows one way to abort:
// engines notice a closed connection and nothing else.
type engineConn struct {
	net.Conn
	engines *Engines
	address string
	alive   bool // may wait for another request
	held    held
}

// Reset closes the connection at once.
func (c *engineConn) Reset() error { return c.Conn.Close() }

func (c *engineConn) Read(p []byte) (int, error) {
	if c.held.on {
		return c.held.read(p)
	}
	return c.Conn.Read(p)
}

func (c *engineConn) keep() {
	c.held.release()
	if !c.alive || !c.engines.put(c) {
		_ = c.Conn.Close()
	}
}
