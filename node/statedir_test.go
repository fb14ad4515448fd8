package node

import (
	"bytes"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"llmgw/ui"
)

func TestIdentityIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	first, err := loadIdentity(dir, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "identity", "key.pem")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v", info.Mode(), err)
	}
	again, err := loadIdentity(dir, rand.Reader)
	if err != nil || !first.Equal(again) {
		t.Errorf("the second start has another identity: %v", err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left beside the key: %v", entries)
	}
}

func TestIdentityRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		content string
		mode    os.FileMode
		want    string
	}{
		"readable by others": {"x", 0o644, "chmod 600"},
		"damaged":            {"not a key", 0o600, "damaged"},
		"cut":                {"-----BEGIN LLMGW ED25519 SEED-----\nAAAA\n-----END LLMGW ED25519 SEED-----\n", 0o600, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "identity", "key.pem")
			if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(tc.content), tc.mode)); err != nil {
				t.Fatal(err)
			}
			_, err := loadIdentity(dir, rand.Reader)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "AAAA") {
				t.Errorf("got %v", err)
			}
			if raw, _ := os.ReadFile(path); string(raw) != tc.content {
				t.Error("the file was replaced")
			}
		})
	}
}

func TestSecondDaemonIsTold(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockStateDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockStateDir(dir)
	var held *HeldError
	if !errors.As(err, &held) || held.PID != os.Getpid() || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("got %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := lockStateDir(dir)
	if err != nil {
		t.Fatalf("the lock outlived its holder: %v", err)
	}
	_ = again.Close()
}

func TestSocketPathIsStableAndApart(t *testing.T) {
	a, errA := SocketPath("/srv/a")
	again, _ := SocketPath("/srv/../srv/a/")
	b, errB := SocketPath("/srv/b")
	if errA != nil || errB != nil || a != again || a == b {
		t.Errorf("got %q, %q, %q", a, again, b)
	}
	if len(a) > 107 {
		t.Errorf("%q is longer than a socket address may be", a)
	}
}

func TestAdminSocketIsClosedToOthers(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dir := t.TempDir()
	l, err := listenSocket(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		if os.Getenv("LLMGW_CI") == "1" {
			t.Fatal(err)
		}
		t.Skipf("no place for a socket here: %v", err)
	}
	defer l.Close()
	path, _ := SocketPath(dir)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info.Mode(), err)
	}
	// The own user is let in; a listener that allows nobody drops it.
	answers := func(l net.Listener) bool {
		got := make(chan struct{})
		go func() {
			if conn, err := l.Accept(); err == nil {
				_, _ = conn.Write([]byte("x"))
				_ = conn.Close()
			}
			close(got)
		}()
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		n, _ := conn.Read(make([]byte, 1))
		return n == 1
	}
	if !answers(l) {
		t.Error("the own user was refused")
	}
	strict := *l.(*credListener)
	strict.uids = nil
	if answers(&strict) {
		t.Error("a user that is not allowed was let in")
	}
}

func TestSecretMustBeLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for name, tc := range map[string]struct {
		content, want string
	}{
		"short":   {"hunter2\n", "llmgw secret new"},
		"empty":   {"", "holds 0 characters"},
		"missing": {"-", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(path)
			if tc.content != "-" {
				if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := readSecret(path)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRestoreKeepsTheFormerState(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir)
	if _, err := d.client.Pull(t.Context(), ui.PullRequest{Source: simFile(t, `{"llmgw_sim":1}`), As: "before"}, nil); err != nil {
		t.Fatal(err)
	}
	var backup bytes.Buffer
	if _, err := d.client.BackupState(t.Context(), &backup); err != nil {
		t.Fatal(err)
	}
	if _, err := d.client.Pull(t.Context(), ui.PullRequest{Source: simFile(t, `{"llmgw_sim":1,"tokens":9}`), As: "after"}, nil); err != nil {
		t.Fatal(err)
	}
	report, err := d.client.VerifyState(t.Context())
	if err != nil || len(report.Problems) > 0 || report.Rows == 0 {
		t.Errorf("verify says %+v, %v", report, err)
	}
	held := (*HeldError)(nil)
	if _, err := RestoreState(dir, bytes.NewReader(backup.Bytes()), time.Now()); !errors.As(err, &held) {
		t.Errorf("restored under a running daemon: %v", err)
	}
	d.stop()

	if _, err := RestoreState(dir, strings.NewReader("no backup"), time.Now()); err == nil {
		t.Error("nonsense was restored")
	}
	former, err := RestoreState(dir, bytes.NewReader(backup.Bytes()), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(former); err != nil || len(entries) == 0 {
		t.Errorf("the former state is not in %s: %v", former, err)
	}
	again := start(t, dir)
	models, err := again.client.Models(t.Context())
	if err != nil || len(models.Models) != 1 || models.Models[0].Name != "before" {
		t.Errorf("after the restore there is %+v, %v", models.Models, err)
	}
}
