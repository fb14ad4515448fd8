package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"llmgw/mesh/catalog"
)

const (
	// maxIdleOutside bounds the kept connections to one provider, idleOutside how
	// long one is kept: servers close them after a minute or so, and a request
	// that meets that moment has to be sent again.
	maxIdleOutside = 16
	idleOutside    = 30 * time.Second
	// outsideHead bounds the head of a provider's answer.
	outsideHead = 1 << 20
	// maxTLS bounds the configurations that are kept.
	maxTLS = 256
)

// AddressError says that a provider's address, as it was resolved, is one that
// no request may go to.
type AddressError struct{ Host, Why string }

func (e *AddressError) Error() string { return fmt.Sprintf("the address of %s: %s", e.Host, e.Why) }

var errHeadTooLong = fmt.Errorf("the head of the answer is over %d bytes", outsideHead)

// Outside reaches services outside the mesh. Each connection goes to an address
// that was checked as it was connected to; no proxy is asked, and no redirect
// followed.
type Outside struct {
	limits  Limits
	resolve *net.Resolver // nil: the system's
	idleFor time.Duration

	mu   sync.Mutex
	idle map[string][]*outsideConn // by settings of the connection; last used last
	tls  map[string]*tls.Config    // by the same
}

// NewOutside makes an empty set of connections.
func NewOutside(limits Limits) *Outside {
	return &Outside{limits: limits, idleFor: idleOutside, idle: make(map[string][]*outsideConn), tls: make(map[string]*tls.Config)}
}

// Start sends call to a provider with one of its keys, which may be empty, and
// waits for the head of the answer. via names this mesh for those who look for
// loops. A kept connection that turns out to be dead costs nothing but a new one.
// Errors as those of the package's Start.
func (o *Outside) Start(ctx context.Context, p *catalog.Provider, key catalog.Secret, via string, call *Call, wait Wait) (*Exchange, error) {
	own, err := outsideCall(p, key, via, call)
	if err != nil {
		return nil, &BrokenError{StageConnect, err}
	}
	name := settingsOf(p)
	if conn := o.take(name); conn != nil {
		x, err := o.startOn(ctx, conn, own, wait)
		if err == nil || !isDead(err) {
			return x, err
		}
		o.drop(name)
	}
	conn, err := o.connect(ctx, p)
	if err != nil {
		return nil, err
	}
	return o.startOn(ctx, conn, own, wait)
}

func (o *Outside) startOn(ctx context.Context, conn *outsideConn, call *Call, wait Wait) (*Exchange, error) {
	conn.head = outsideHead
	x, err := Start(ctx, conn, call, o.limits, wait)
	conn.head = -1
	return x, err
}

// toOutside are the headers of a client's that a provider gets: the rest may hold
// credentials or say who the client is.
func toOutside(name string) bool {
	switch name {
	case "Accept", "Content-Type", "Openai-Beta", "Via", "X-Request-Id":
		return true
	}
	return strings.HasPrefix(name, "Anthropic-")
}

// outsideCall is the request as a provider gets it.
func outsideCall(p *catalog.Provider, key catalog.Secret, via string, c *Call) (*Call, error) {
	base, err := url.Parse(p.Base())
	if err != nil {
		return nil, errors.New("the provider's URL cannot be read")
	}
	own := &Call{Path: outsidePath(base.EscapedPath(), c.Path), Host: base.Host, Header: make(http.Header), Body: c.Body}
	for name, values := range c.Header {
		if toOutside(name) {
			own.Header[name] = values
		}
	}
	own.Extra = append(own.Extra, "User-Agent", "llmgw", "Accept-Encoding", "identity")
	if via != "" {
		own.Extra = append(own.Extra, "Via", "1.1 "+via)
	}
	messages := strings.HasPrefix(c.Path, "/v1/messages")
	if messages && own.Header.Get("Anthropic-Version") == "" {
		own.Extra = append(own.Extra, "Anthropic-Version", "2023-06-01")
	}
	switch {
	case key == "":
	case messages:
		own.Extra = append(own.Extra, "X-Api-Key", key.Reveal())
	default:
		own.Extra = append(own.Extra, "Authorization", "Bearer "+key.Reveal())
	}
	return own, nil
}

// outsidePath puts a path of ours below a provider's base, which stands for /v1.
func outsidePath(base, path string) string {
	if rest, ok := strings.CutPrefix(path, "/v1/"); ok {
		return base + "/" + rest
	}
	return strings.TrimSuffix(base, "/v1") + path
}

// settingsOf names what makes a connection: one made under other settings is not
// used again.
func settingsOf(p *catalog.Provider) string {
	return fmt.Sprintf("%s\n%s\n%t %t\n%s", p.ID, catalog.Origin(p.URL), p.Private, p.Insecure, p.CA)
}

// connect opens a connection and proves the provider's identity.
func (o *Outside) connect(ctx context.Context, p *catalog.Provider) (*outsideConn, error) {
	bounded, cancel := context.WithTimeout(ctx, 2*o.limits.Connect)
	defer cancel()
	conn, err := o.open(bounded, p)
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, &BrokenError{StageConnect, err}
}

func (o *Outside) open(ctx context.Context, p *catalog.Provider) (*outsideConn, error) {
	u, err := url.Parse(p.URL)
	if err != nil {
		return nil, errors.New("the provider's URL cannot be read")
	}
	port := u.Port()
	if port == "" {
		port = "443"
		if u.Scheme == "http" {
			port = "80"
		}
	}
	dialer := &net.Dialer{Timeout: o.limits.Connect, Resolver: o.resolve, Control: checkedAddress(p, u)}
	raw, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	conn := &outsideConn{Conn: raw, raw: raw, o: o, settings: settingsOf(p), head: -1}
	if u.Scheme == "http" {
		return conn, nil
	}
	secured := tls.Client(raw, o.tlsFor(p, u.Hostname()))
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Reset()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	conn.Conn = secured
	return conn, nil
}

// checkedAddress looks at the very address that is connected to, so that no name
// can mean another one in the meantime.
func checkedAddress(p *catalog.Provider, u *url.URL) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return &AddressError{u.Hostname(), "it cannot be read"}
		}
		why := catalog.RefuseAddress(at.Addr(), p.Private)
		if why == "" && u.Scheme != "https" && !catalog.IsPrivateAddress(at.Addr()) {
			why = fmt.Sprintf("%s is public: plain http is for private addresses only", at.Addr())
		}
		if why != "" {
			return &AddressError{u.Hostname(), why}
		}
		return nil
	}
}

// tlsFor gives the TLS settings of a provider, the same ones each time, as they
// keep its sessions.
func (o *Outside) tlsFor(p *catalog.Provider, host string) *tls.Config {
	name := settingsOf(p)
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.tls[name]; c != nil {
		return c
	}
	if len(o.tls) >= maxTLS {
		clear(o.tls)
	}
	c := &tls.Config{
		ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		InsecureSkipVerify: p.Insecure, ClientSessionCache: tls.NewLRUClientSessionCache(4),
	}
	if p.CA != "" {
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM([]byte(p.CA)) // checked as it was set; none means that nothing is trusted
	}
	o.tls[name] = c
	return c
}

func (o *Outside) take(settings string) *outsideConn {
	o.mu.Lock()
	defer o.mu.Unlock()
	for list := o.idle[settings]; len(list) > 0; list = o.idle[settings] {
		conn := list[len(list)-1]
		o.idle[settings] = list[:len(list)-1]
		if conn.timer.Stop() {
			return conn
		}
	}
	delete(o.idle, settings)
	return nil
}

func (o *Outside) put(c *outsideConn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.idle == nil || len(o.idle[c.settings]) >= maxIdleOutside {
		return false
	}
	c.timer = time.AfterFunc(o.idleFor, func() { o.expire(c) })
	o.idle[c.settings] = append(o.idle[c.settings], c)
	return true
}

// expire closes a connection that nobody took for a while.
func (o *Outside) expire(c *outsideConn) {
	o.mu.Lock()
	list := o.idle[c.settings]
	for i, other := range list {
		if other == c {
			o.idle[c.settings] = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if len(o.idle[c.settings]) == 0 {
		delete(o.idle, c.settings)
	}
	o.mu.Unlock()
	_ = c.Close()
}

// drop closes the kept connections of a provider.
func (o *Outside) drop(settings string) {
	for c := o.take(settings); c != nil; c = o.take(settings) {
		_ = c.Reset()
	}
}

// Close closes the kept connections; exchanges in progress go on.
func (o *Outside) Close() {
	o.mu.Lock()
	all := o.idle
	o.idle = nil
	o.mu.Unlock()
	for _, list := range all {
		for _, c := range list {
			if c.timer.Stop() {
				_ = c.Close()
			}
		}
	}
}

// outsideConn is a connection to a provider.
type outsideConn struct {
	net.Conn          // with TLS, if there is any
	raw      net.Conn // without
	o        *Outside
	settings string
	head     int // bytes that the head of an answer may still have; -1: none is read
	timer    *time.Timer
}

// Read bounds the head of an answer.
func (c *outsideConn) Read(p []byte) (int, error) {
	if c.head == 0 {
		return 0, errHeadTooLong
	}
	if c.head > 0 {
		p = p[:min(len(p), c.head)]
	}
	n, err := c.Conn.Read(p)
	if c.head > 0 {
		c.head -= n
	}
	return n, err
}

// Reset closes the connection at once, so that the provider's next write fails.
func (c *outsideConn) Reset() error {
	if tcp, ok := c.raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // without it the close is an ordinary one
	}
	return c.raw.Close()
}

func (c *outsideConn) keep() {
	if !c.o.put(c) {
		_ = c.Close()
	}
}

// ErrLongError is an answer that is an error and longer than one may be.
var ErrLongError = errors.New("the error in the answer is too long")

// Hold reads an answer to its end, at most limit bytes. Given back by Replace, it
// can be read by Next once more.
func (x *Exchange) Hold(limit int) ([]byte, error) {
	body, buf := []byte(nil), make([]byte, 4<<10)
	for {
		n, err := x.Next(buf, nil)
		if body = append(body, buf[:n]...); len(body) > limit {
			return nil, &BrokenError{StageAnswer, ErrLongError}
		}
		if x.ended {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
