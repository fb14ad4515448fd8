package store_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// crashCopy copies the directory of an open store as a killed process would leave it: the memory-mapped files hold
// all that was committed, and nothing was closed. Badger's files are mostly holes, which are not read. When badger
// has written a table meanwhile, the copy would be of no one moment, and is made again.
func crashCopy(t *testing.T, from string) string {
	t.Helper()
	for {
		to := t.TempDir()
		names := namesIn(t, from)
		var err error
		for _, name := range names {
			if err = copySparse(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
				break
			}
		}
		if err == nil && slices.Equal(names, namesIn(t, from)) {
			return to
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("copy store: %v", err)
		}
	}
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func copySparse(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if err := copyData(in, out, info.Size()); err != nil {
		return errors.Join(err, out.Close())
	}
	return out.Close()
}

func copyData(in, out *os.File, size int64) error {
	if err := out.Truncate(size); err != nil {
		return err
	}
	for at := int64(0); at < size; {
		start, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(in.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(out, start), io.NewSectionReader(in, start, end-start)); err != nil {
			return err
		}
		at = end
	}
	return nil
}
