package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// socketGroup may talk to the system's own daemon.
const socketGroup = "llmgw"

// SocketPath is where the daemon of a state directory listens for the command
// line: one fixed place for the system's own, else a name made from a hash of
// the directory, so that many daemons can run on one machine.
func SocketPath(stateDir string) (string, error) {
	abs, err := filepath.Abs(stateDir)
	if err != nil {
		return "", fmt.Errorf("make the state directory absolute: %w", err)
	}
	dir := "/run/llmgw"
	if os.Geteuid() != 0 {
		if dir = os.Getenv("XDG_RUNTIME_DIR"); !filepath.IsAbs(dir) {
			dir = filepath.Join(os.TempDir(), "llmgw-"+strconv.Itoa(os.Geteuid()))
		}
		dir = filepath.Join(dir, "llmgw")
	} else if abs == DefaultStateDir() {
		return filepath.Join(dir, "llmgw.sock"), nil
	}
	sum := sha256.Sum256([]byte(abs))
	return filepath.Join(dir, hex.EncodeToString(sum[:8])+".sock"), nil
}

// listenSocket opens the admin socket. The state directory's lock is held, so
// a socket file that is there was left by a daemon that ended.
func listenSocket(stateDir string, log *slog.Logger) (net.Listener, error) {
	path, err := SocketPath(stateDir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make socket directory: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	// Made closed to others, then opened to the group if it is the system's.
	old := unix.Umask(0o177)
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen on admin socket: %w", err)
	}
	allowed := []uint32{0, uint32(os.Geteuid())}
	gid, grouped := systemGroup(path)
	if grouped {
		if err := errors.Join(os.Chown(path, -1, gid), os.Chmod(path, 0o660)); err != nil {
			log.Warn("admin socket stays closed to the group", "group", socketGroup, "error", err)
			grouped = false
		}
	}
	return &credListener{Listener: l, uids: allowed, gid: uint32(gid), grouped: grouped, log: log}, nil
}

func systemGroup(path string) (int, bool) {
	if filepath.Base(path) != "llmgw.sock" {
		return 0, false
	}
	g, err := user.LookupGroup(socketGroup)
	if err != nil {
		return 0, false
	}
	gid, err := strconv.Atoi(g.Gid)
	return gid, err == nil
}

// credListener hands out only connections of processes that may administer
// this daemon. The file's mode says the same; this holds where a mode does not,
// for instance after the socket was passed on.
type credListener struct {
	net.Listener
	uids    []uint32
	gid     uint32
	grouped bool
	log     *slog.Logger
}

func (l *credListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		cred, err := peerCredentials(conn)
		if err == nil && l.allows(cred) {
			return conn, nil
		}
		l.log.Warn("admin socket refused a process", "uid", cred.Uid, "pid", cred.Pid, "error", err)
		_ = conn.Close()
	}
}

func (l *credListener) allows(cred unix.Ucred) bool {
	for _, uid := range l.uids {
		if cred.Uid == uid {
			return true
		}
	}
	if !l.grouped {
		return false
	}
	if cred.Gid == l.gid {
		return true
	}
	u, err := user.LookupId(strconv.FormatUint(uint64(cred.Uid), 10))
	if err != nil {
		return false
	}
	groups, err := u.GroupIds()
	want := strconv.FormatUint(uint64(l.gid), 10)
	for _, g := range groups {
		if err == nil && g == want {
			return true
		}
	}
	return false
}

func peerCredentials(conn net.Conn) (unix.Ucred, error) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return unix.Ucred{}, errors.New("not a unix socket")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return unix.Ucred{}, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return unix.Ucred{}, err
	}
	return *cred, nil
}
