package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
)

// server is an HTTP server on a listener that is open already.
type server struct {
	http     *http.Server
	listener net.Listener
}

// headerTimeout ends connections that never finish their request's head. A
// body and an answer may take as long as they need.
const headerTimeout = 20 * time.Second

func (n *Node) servers() map[string]*server {
	return map[string]*server{
		"public port":  {n.httpServer(n.publicHandler()), n.public},
		"admin socket": {n.httpServer(n.ui.AdminHandler()), n.admin},
	}
}

func (n *Node) httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
	}
}

func (s *server) run(context.Context) error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// stop lets requests end until ctx does, then cuts them.
func (s *server) stop(ctx context.Context) {
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
}

// publicHandler shares the one public port: the page and the admin API have
// their own paths, everything else is a client's.
func (n *Node) publicHandler() http.Handler {
	page, api := n.ui.PublicHandler(), n.router.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isPage(r.URL.Path) {
			page.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

func isPage(path string) bool {
	return path == "/" || path == "/index.html" || path == "/favicon.svg" ||
		strings.HasPrefix(path, "/assets/") || strings.HasPrefix(path, "/admin/")
}

func (n *Node) banned() bool {
	_, out := n.mesh.Banned()
	return out
}

// ready says in one word why this node should not be sent requests; empty: it is.
func (n *Node) ready() string {
	switch {
	case n.stopping.Load():
		return "stopping"
	case !n.settled.Load():
		return "starting"
	case n.banned():
		return "removed"
	case n.mesh.Serving() != nil:
		return "copy"
	}
	return ""
}

// hosts are the names under which the page may be opened, besides addresses.
func (n *Node) hosts() []string {
	names := []string{"localhost"}
	for _, name := range []string{n.cfg.Name, hostname()} {
		names = append(names, name, name+".local", name+".lan")
	}
	return names
}

// publicURL is where a browser on another box reaches the page.
func (n *Node) publicURL() string { return "http://" + n.apiAddresses()[0] }

// apiAddresses are the host:port pairs of the public port, the one most useful
// to others first.
func (n *Node) apiAddresses() []string {
	host, port, err := net.SplitHostPort(n.public.Addr().String())
	if err != nil {
		return []string{n.public.Addr().String()}
	}
	ip := net.ParseIP(host)
	if ip != nil && !ip.IsUnspecified() {
		return []string{net.JoinHostPort(host, port)}
	}
	var out []string
	for _, ip := range ownAddresses() {
		out = append(out, net.JoinHostPort(ip.String(), port))
	}
	return append(out, net.JoinHostPort("127.0.0.1", port))
}

// ownAddresses are this box's unicast addresses that others may reach: no
// loopback, no link-local, none of container bridges; IPv4 first.
func ownAddresses() []net.IP {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var v4, v6 []net.IP
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 || isContainerBridge(i.Name) {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			switch {
			case !ok || !n.IP.IsGlobalUnicast():
			case n.IP.To4() != nil:
				v4 = append(v4, n.IP)
			default:
				v6 = append(v6, n.IP)
			}
		}
	}
	return append(v4, v6...)
}

func isContainerBridge(name string) bool {
	for _, prefix := range []string{"docker", "br-", "virbr", "podman", "cni", "flannel", "veth"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
