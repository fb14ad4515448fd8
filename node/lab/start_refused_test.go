package lab

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
)

// refusesToStart runs `llmgw up` and wants a quick end with these words.
func refusesToStart(t *testing.T, b *Box, says ...string) {
	t.Helper()
	r, err := b.Run(seconds(t, 20), append([]string{Binary(t), "up", "--state-dir", b.StateDir()}, b.Args...)...)
	if err != nil {
		t.Fatal(err)
	}
	if r.Code <= 0 {
		t.Fatalf("the daemon started, or had to be ended:\n%s", r)
	}
	for _, want := range says {
		if !strings.Contains(r.Stderr+r.Stdout, want) {
			t.Errorf("the refusal lacks %q:\n%s", want, r)
		}
	}
}

func TestSecondDaemonOnOneStateDirectoryIsRefused(t *testing.T) {
	l := New(t)
	b := l.Box("b")
	b.Start()
	refusesToStart(t, b, fmt.Sprint(b.PID()), b.StateDir())
	if !b.Running() {
		t.Error("the first daemon did not survive the second")
	}
	b.CLI("status")
	b.Kill() // and a dead one holds nothing
	b.Start()
}

func TestTakenPortIsNamedWithItsFlag(t *testing.T) {
	for flag, port := range map[string]int{"--api": APIPort, "--mesh": MeshPort} {
		t.Run(flag, func(t *testing.T) {
			l := New(t)
			b := l.Box("b")
			ln, err := b.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", port))
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			refusesToStart(t, b, flag, fmt.Sprint(port))
			_ = ln.Close()
			b.Start()
		})
	}
}

// TestNewerStateDirectoryIsRefused plays a newer build, which raises the
// store's schema number; an older daemon must leave all as it is.
func TestNewerStateDirectoryIsRefused(t *testing.T) {
	l := New(t)
	b := l.Box("b")
	b.Start()
	key := b.CLI("keys", "new", "kept")
	b.Stop()
	dir := storeDir(t, b)
	was := setSchema(t, dir, 1_000_000)
	refusesToStart(t, b, "newer", "--state-dir")
	if got := setSchema(t, dir, was); got != 1_000_000 {
		t.Errorf("the refusing daemon changed the schema to %d", got)
	}
	b.Start()
	answers(t, b.API(b, key), 200)
}

// storeDir finds the database below the state directory.
func storeDir(t *testing.T, b *Box) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(b.StateDir(), "*", "MANIFEST"))
	if err != nil || len(found) != 1 {
		t.Fatalf("want one database below %s, found %v, %v", b.StateDir(), found, err)
	}
	return filepath.Dir(found[0])
}

// setSchema replaces the schema number and returns the former one.
func setSchema(t *testing.T, dir string, schema uint64) (was uint64) {
	t.Helper()
	db, err := badger.Open(badger.DefaultOptions(dir).WithLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	key := []byte("m/sys/schema")
	err = db.Update(func(txn *badger.Txn) error {
		item, err := txn.Get(key)
		if err != nil {
			return err
		}
		raw, err := item.ValueCopy(nil)
		if err != nil {
			return err
		}
		was = binary.BigEndian.Uint64(raw)
		return txn.Set(key, binary.BigEndian.AppendUint64(nil, schema))
	})
	if err != nil {
		t.Fatal(err)
	}
	return was
}

// TestUnreadableSettingsAreNamed: a value that cannot be meant ends the start
// with its name and its origin.
func TestUnreadableSettingsAreNamed(t *testing.T) {
	l := New(t)
	b := l.Box("b")
	b.Args = []string{"--api", "nowhere"}
	refusesToStart(t, b, "nowhere", "--api")
	b.Args = nil
	if err := os.MkdirAll(b.StateDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(b.StateDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("name: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refusesToStart(t, b, file, "version")
}
