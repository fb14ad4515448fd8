// Package files owns what engines made and clients fetch by a link: pictures and sounds,
// on the disk of the box that was asked, each for the API key that it was made for, until
// it expires.
package files

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// DefaultKeep is how long a file is there.
	DefaultKeep = time.Hour
	// DefaultRoom bounds all files of a box, in bytes; the oldest make room for new ones.
	DefaultRoom = 1 << 30
)

var (
	// ErrNone: there is no such file, or it is another key's.
	ErrNone = errors.New("no such file")
	// ErrTooLarge: it alone is more than there is room for.
	ErrTooLarge = errors.New("larger than all room for files")
)

// File is one file without its bytes.
type File struct {
	ID      string    `json:"id"`
	Key     string    `json:"key"` // ID of the API key
	Name    string    `json:"name"`
	Type    string    `json:"type"` // MIME
	Size    int64     `json:"size"` // bytes
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
}

// Config of a Store. Dir and Entropy are needed.
type Config struct {
	Dir string
	// Owner begins each ID, so that whoever has one knows whom to ask.
	Owner   string
	Entropy io.Reader
	Now     func() time.Time // nil: time.Now
	Log     *slog.Logger     // nil: none
	Keep    time.Duration    // 0: DefaultKeep
	Room    int64            // bytes; 0: DefaultRoom
}

// Store is safe for use by several goroutines.
type Store struct {
	cfg Config

	mu    sync.Mutex
	files map[string]File
	size  int64
	timer *time.Timer // for the next one to expire; nil: there is none, or the store is closed
	shut  bool
}

// Names in the directory: the bytes, what is known of them, and what is under way.
const (
	factsSuffix = ".json"
	partSuffix  = ".part"
)

// Open takes over what an earlier run left and has not expired; the rest goes.
func Open(cfg Config) (*Store, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Keep == 0 {
		cfg.Keep = DefaultKeep
	}
	if cfg.Room == 0 {
		cfg.Room = DefaultRoom
	}
	s := &Store{cfg: cfg, files: map[string]File{}}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open made files: %w", err)
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("open made files: %w", err)
	}
	s.Expire()
	return s, nil
}

func (s *Store) load() error {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), factsSuffix); ok {
			if f, err := s.facts(id); err == nil {
				s.files[id] = f
				s.size += f.Size
			}
		}
	}
	for _, e := range entries {
		if _, known := s.files[strings.TrimSuffix(e.Name(), factsSuffix)]; !known {
			if err := os.RemoveAll(filepath.Join(s.cfg.Dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// facts reads what is known of a file, and whether its bytes are all there.
func (s *Store) facts(id string) (File, error) {
	var f File
	raw, err := os.ReadFile(s.path(id) + factsSuffix)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return f, err
	}
	info, err := os.Stat(s.path(id))
	if err != nil {
		return f, err
	}
	if f.ID != id || info.Size() != f.Size {
		return f, errors.New("it is not whole")
	}
	return f, nil
}

func (s *Store) path(id string) string { return filepath.Join(s.cfg.Dir, id) }

// Put keeps data for a key and gives it an ID. Errors are ErrTooLarge and those of the
// disk; nothing is left of what could not be kept.
func (s *Store) Put(key, name, mime string, data []byte) (File, error) {
	var raw [16]byte
	if _, err := io.ReadFull(s.cfg.Entropy, raw[:]); err != nil {
		return File{}, fmt.Errorf("keep a made file: %w", err)
	}
	now := s.cfg.Now().UTC()
	f := File{
		ID: s.cfg.Owner + "_" + hex.EncodeToString(raw[:]), Key: key, Name: name, Type: mime,
		Size: int64(len(data)), Created: now, Expires: now.Add(s.cfg.Keep),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Size > s.cfg.Room {
		return File{}, fmt.Errorf("keep a made file of %d bytes: %w (%d bytes)", f.Size, ErrTooLarge, s.cfg.Room)
	}
	s.makeRoom(f.Size)
	if err := s.write(f, data); err != nil {
		return File{}, fmt.Errorf("keep a made file of %d bytes: %w", f.Size, err)
	}
	s.files[f.ID] = f
	s.size += f.Size
	s.arm(now)
	return f, nil
}

// write puts the facts last: what has them is whole.
func (s *Store) write(f File, data []byte) error {
	facts, err := json.Marshal(f)
	if err != nil {
		return err
	}
	for _, one := range []struct {
		path string
		data []byte
	}{{s.path(f.ID), data}, {s.path(f.ID) + factsSuffix, facts}} {
		err := os.WriteFile(one.path+partSuffix, one.data, 0o600)
		if err == nil {
			err = os.Rename(one.path+partSuffix, one.path)
		}
		if err != nil {
			s.unlink(f.ID)
			return err
		}
	}
	return nil
}

// makeRoom lets the oldest go until there is room for so many bytes more.
func (s *Store) makeRoom(size int64) {
	for s.size+size > s.cfg.Room {
		s.drop(s.oldest())
	}
}

func (s *Store) oldest() File {
	var first File
	for _, f := range s.files {
		if first.ID == "" || f.Created.Before(first.Created) {
			first = f
		}
	}
	return first
}

func (s *Store) drop(f File) {
	delete(s.files, f.ID)
	s.size -= f.Size
	s.unlink(f.ID)
}

func (s *Store) unlink(id string) {
	for _, suffix := range []string{factsSuffix, factsSuffix + partSuffix, partSuffix, ""} {
		if err := os.Remove(s.path(id) + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.cfg.Log.Warn("a made file stays on disk until the next start", "error", err)
		}
	}
}

// Stat finds a file of a key; ErrNone if there is none.
func (s *Store) Stat(id, key string) (File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(id, key)
}

func (s *Store) find(id, key string) (File, error) {
	f, ok := s.files[id]
	if !ok || f.Key != key || !s.cfg.Now().Before(f.Expires) {
		return File{}, ErrNone
	}
	return f, nil
}

// Open opens a file of a key; ErrNone if there is none. It can be read to its end also when it expires meanwhile.
func (s *Store) Open(id, key string) (io.ReadSeekCloser, File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.find(id, key)
	if err != nil {
		return nil, File{}, err
	}
	r, err := os.Open(s.path(id))
	if err != nil {
		return nil, File{}, fmt.Errorf("open a made file: %w", err)
	}
	return r, f, nil
}

// Remove deletes a file of a key; ErrNone if there is none.
func (s *Store) Remove(id, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.find(id, key)
	if err != nil {
		return err
	}
	s.drop(f)
	return nil
}

// Expire deletes what has expired. The store does so by itself; it is for clocks that
// were set.
func (s *Store) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	for _, f := range s.files {
		if !now.Before(f.Expires) || f.Created.After(now.Add(s.cfg.Keep)) { // or by a clock that was far ahead
			s.drop(f)
		}
	}
	s.arm(now)
}

// arm has the next one expire in time.
func (s *Store) arm(now time.Time) {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if len(s.files) == 0 || s.shut {
		return
	}
	first := s.oldest()
	s.timer = time.AfterFunc(max(first.Expires.Sub(now), time.Second), s.Expire)
}

// Close ends the store's timer; the files stay.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
	s.arm(s.cfg.Now())
	return nil
}

// types of files by how they begin, with the ending of their names. What is not here is
// told apart by nothing, and no browser is to guess.
var types = []struct {
	at          int
	magic       string
	mime, short string
}{
	{0, "\x89PNG\r\n\x1a\n", "image/png", "png"},
	{0, "\xff\xd8\xff", "image/jpeg", "jpg"},
	{8, "WEBP", "image/webp", "webp"},
	{0, "GIF8", "image/gif", "gif"},
	{4, "ftypavif", "image/avif", "avif"},
	{8, "WAVE", "audio/wav", "wav"},
	{0, "fLaC", "audio/flac", "flac"},
	{0, "OggS", "audio/ogg", "ogg"},
	{0, "ID3", "audio/mpeg", "mp3"},
	{0, "\xff\xf1", "audio/aac", "aac"},
	{0, "\xff\xf9", "audio/aac", "aac"},
	{0, "\xff\xfb", "audio/mpeg", "mp3"},
	{0, "\xff\xf3", "audio/mpeg", "mp3"},
	{4, "ftyp", "video/mp4", "mp4"},
	{0, "\x1aE\xdf\xa3", "video/webm", "webm"},
}

// TypeOf tells the kind of a file by its first bytes, and the usual ending of its name.
func TypeOf(data []byte) (mime, ending string) {
	for _, t := range types {
		if len(data) > t.at && bytes.HasPrefix(data[t.at:], []byte(t.magic)) {
			return t.mime, t.short
		}
	}
	return "application/octet-stream", "bin"
}
