package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// The cache folder holds wheels/FILE.whl and, once the wheel is whole,
// wheels/FILE.whl.sha256 with its checksum. Several daemons may share it:
// files come there by rename, and a reader trusts only what the checksum
// beside it confirms.
const (
	cacheWheels = "wheels"
	cacheSum    = ".sha256"
)

// cached finds a whole wheel in the cache folder.
func (w *Wheels) cached(name, version string) (string, bool) {
	if w.cache == "" {
		return "", false
	}
	dir := filepath.Join(w.cache, cacheWheels)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", false
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !isWheelOf(e.Name(), name, version) {
			continue
		}
		file := filepath.Join(dir, e.Name())
		if err := confirm(file); err != nil {
			w.log.Warn("wheel in the cache folder not used", slog.String("file", file), slog.Any("error", err))
			continue
		}
		return file, true
	}
	return "", false
}

// confirm checks a cached file against the checksum beside it.
func confirm(file string) error {
	want, err := os.ReadFile(file + cacheSum)
	if err != nil {
		return err
	}
	got, err := HashFile(file)
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(want)) != got {
		return fmt.Errorf("its SHA-256 is %s, recorded is %.64q", got, want)
	}
	return nil
}

// HashFile is the SHA-256 of a file, as 64 hex digits.
func HashFile(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// keep moves a new wheel to the cache folder, if there is one, and returns
// where it is now. What cannot be kept is still used.
func (w *Wheels) keep(file string) string {
	if w.cache == "" {
		return file
	}
	kept, err := w.moveToCache(file)
	if err != nil {
		w.log.Warn("wheel not kept in the cache folder", slog.String("file", file), slog.Any("error", err))
		return file
	}
	return kept
}

func (w *Wheels) moveToCache(file string) (string, error) {
	dir := filepath.Join(w.cache, cacheWheels)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	sum, err := HashFile(file)
	if err != nil {
		return "", err
	}
	kept := filepath.Join(dir, filepath.Base(file))
	if err := replace(kept, func(f *os.File) error { return copyInto(f, file) }); err != nil {
		return "", err
	}
	err = replace(kept+cacheSum, func(f *os.File) error { _, err := fmt.Fprintln(f, sum); return err })
	if err != nil {
		return "", err
	}
	return kept, os.Remove(file)
}

func copyInto(out *os.File, file string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(out, in) // the kernel shares the blocks where it can
	return err
}

// replace writes a file beside its place and renames it there.
func replace(name string, write func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone already when all went well
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
