package files

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func newClock() *clock { return &clock{at: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)} }

func open(t *testing.T, dir string, c *clock, change ...func(*Config)) *Store {
	t.Helper()
	cfg := Config{Dir: dir, Owner: "file-peer", Entropy: rand.Reader, Now: c.now}
	for _, fn := range change {
		fn(&cfg)
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t *testing.T, s *Store, key, data string) File {
	t.Helper()
	f, err := s.Put(key, "image.png", "image/png", []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func content(t *testing.T, s *Store, id, key string) string {
	t.Helper()
	r, _, err := s.Open(id, key)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	raw, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// left lists what is in the directory.
func left(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAFileIsItsKeysAlone(t *testing.T) {
	s := open(t, t.TempDir(), newClock())
	f := put(t, s, "k1", "picture")
	if !strings.HasPrefix(f.ID, "file-peer_") || f.Size != 7 || f.Expires.Sub(f.Created) != DefaultKeep {
		t.Errorf("%+v", f)
	}
	if got := content(t, s, f.ID, "k1"); got != "picture" {
		t.Errorf("got %q", got)
	}
	if _, _, err := s.Open(f.ID, "k2"); !errors.Is(err, ErrNone) {
		t.Errorf("another key: %v", err)
	}
	if err := s.Remove(f.ID, "k2"); !errors.Is(err, ErrNone) {
		t.Errorf("another key deletes: %v", err)
	}
	if err := s.Remove(f.ID, "k1"); err != nil {
		t.Error(err)
	}
	if _, err := s.Stat(f.ID, "k1"); !errors.Is(err, ErrNone) || len(left(t, s.cfg.Dir)) != 0 {
		t.Errorf("after it was deleted: %v, %v", err, left(t, s.cfg.Dir))
	}
}

func TestFilesExpire(t *testing.T) {
	c := newClock()
	s := open(t, t.TempDir(), c)
	old := put(t, s, "k", "old")
	c.pass(DefaultKeep / 2)
	young := put(t, s, "k", "young")
	reading, _, err := s.Open(old.ID, "k")
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Close()
	c.pass(DefaultKeep / 2)
	if _, err := s.Stat(old.ID, "k"); !errors.Is(err, ErrNone) {
		t.Errorf("before it is swept: %v", err)
	}
	s.Expire()
	if names := left(t, s.cfg.Dir); len(names) != 2 || !strings.HasPrefix(names[0], young.ID) {
		t.Errorf("left: %v", names)
	}
	if raw, err := io.ReadAll(reading); err != nil || string(raw) != "old" {
		t.Errorf("who reads it already reads on: %q, %v", raw, err)
	}
}

// TestAFileExpiresByItself: nobody asks for it any more, and the disk is wanted back.
func TestAFileExpiresByItself(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir, Entropy: rand.Reader, Keep: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put(t, s, "k", "data")
	for deadline := time.Now().Add(30 * time.Second); len(left(t, dir)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(left(t, dir))
		}
	}
}

func TestTheOldestMakeRoom(t *testing.T) {
	c := newClock()
	s := open(t, t.TempDir(), c, func(cfg *Config) { cfg.Room = 10 })
	a := put(t, s, "k", "aaaa")
	c.pass(time.Second)
	b := put(t, s, "k", "bbbb")
	c.pass(time.Second)
	put(t, s, "k", "cc")
	c.pass(time.Second)
	d := put(t, s, "k", "ddd")
	if _, err := s.Stat(a.ID, "k"); !errors.Is(err, ErrNone) {
		t.Error("the oldest is still there")
	}
	for _, f := range []File{b, d} {
		if _, err := s.Stat(f.ID, "k"); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Put("k", "n", "t", make([]byte, 11)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one that is larger than all: %v", err)
	}
	if _, err := s.Stat(d.ID, "k"); err != nil {
		t.Error("what could not be kept took others with it")
	}
}

func TestFilesOutliveTheDaemon(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s := open(t, dir, c)
	kept, gone, half, cut := put(t, s, "k", "kept"), put(t, s, "k", "gone"), put(t, s, "k", "half"), put(t, s, "k", "cut")
	s.Close()
	damage := []error{
		os.Remove(filepath.Join(dir, gone.ID)),                                // its bytes
		os.Remove(filepath.Join(dir, half.ID+factsSuffix)),                    // what is known of it
		os.WriteFile(filepath.Join(dir, cut.ID), []byte("c"), 0o600),          // cut short
		os.WriteFile(filepath.Join(dir, "x"+partSuffix), []byte("c"), 0o600),  // begun
		os.WriteFile(filepath.Join(dir, "y"+factsSuffix), []byte("{"), 0o600), // no facts
	}
	if err := errors.Join(damage...); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, c)
	if got := content(t, s, kept.ID, "k"); got != "kept" || s.size != 4 {
		t.Errorf("%q, %d bytes", got, s.size)
	}
	if names := left(t, dir); len(names) != 2 {
		t.Errorf("what is not whole stays: %v", names)
	}
	c.pass(DefaultKeep)
	s.Close()
	if open(t, dir, c); len(left(t, dir)) != 0 {
		t.Errorf("what expired meanwhile: %v", left(t, dir))
	}
}

// TestAClockThatWasAheadKeepsNothingForEver: what a box made when it believed to be in the
// next year must not stay for a year.
func TestAClockThatWasAheadKeepsNothingForEver(t *testing.T) {
	c := newClock()
	s := open(t, t.TempDir(), c)
	put(t, s, "k", "data")
	c.pass(-24 * time.Hour)
	if s.Expire(); len(left(t, s.cfg.Dir)) != 0 {
		t.Error(left(t, s.cfg.Dir))
	}
}

func TestWhatCannotBeWrittenLeavesNothing(t *testing.T) {
	full := "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip("this system has no /dev/full")
	}
	dir := t.TempDir()
	c := newClock()
	id := strings.Repeat("00", 16)
	s := open(t, dir, c, func(cfg *Config) { cfg.Entropy = bytes.NewReader(make([]byte, 16)) })
	if err := os.Symlink(full, filepath.Join(dir, "file-peer_"+id+partSuffix)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put("k", "n", "t", []byte("data")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if names := left(t, dir); len(names) != 0 || s.size != 0 {
		t.Errorf("left: %v, %d bytes", names, s.size)
	}
	if _, err := s.Put("k", "n", "t", nil); err == nil {
		t.Error("an ID without entropy")
	}
}

func TestTypeOf(t *testing.T) {
	for data, want := range map[string]string{
		"\x89PNG\r\n\x1a\n....": "image/png", "\xff\xd8\xff\xe0": "image/jpeg", "RIFF....WEBPVP8 ": "image/webp",
		"GIF89a": "image/gif", "RIFF....WAVEfmt ": "audio/wav", "OggS": "audio/ogg", "ID3\x03": "audio/mpeg", "fLaC": "audio/flac",
		"\xff\xfb\x90": "audio/mpeg", "\xff\xf1\x50": "audio/aac", "....ftypisom": "video/mp4", "....ftypavif": "image/avif",
		"<html>": "application/octet-stream", "<svg onload=": "application/octet-stream", "": "application/octet-stream", "RIFF": "application/octet-stream",
	} {
		mime, ending := TypeOf([]byte(data))
		if mime != want || ending == "" {
			t.Errorf("%q: %s, %q", data, mime, ending)
		}
	}
}
