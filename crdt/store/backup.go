package store

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
)

// backupMagic begins a backup; badger's own format follows, and then the SHA-256 of all before it. Badger's format
// does not tell whether it is complete.
const backupMagic = "llmgw state backup 1\n"

// Backup writes everything that the store holds, as of now. Writes go on meanwhile. Restore reads it.
func (s *Store) Backup(w io.Writer) error {
	s.state.RLock()
	defer s.state.RUnlock()
	if s.closed {
		return ErrClosed
	}
	sum := sha256.New()
	out := &firstError{w: io.MultiWriter(w, sum)}
	_, err := io.WriteString(out, backupMagic)
	if err == nil {
		_, err = s.db.Backup(out, 0)
	}
	if err == nil {
		_, err = w.Write(sum.Sum(nil))
	}
	if err != nil {
		// Badger reports a writer that fails as "context canceled".
		if out.err != nil {
			err = out.err
		}
		return fmt.Errorf("back up store: %w", err)
	}
	return nil
}

// firstError remembers why writing failed.
type firstError struct {
	w   io.Writer
	err error
}

func (f *firstError) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err != nil && f.err == nil {
		f.err = err
	}
	return n, err
}

// backupReader gives the middle of a backup: without the magic, and without the sum at the end, which check compares.
type backupReader struct {
	r    io.Reader
	sum  hash.Hash
	held []byte // read, and perhaps part of the sum
	end  bool
}

func newBackupReader(r io.Reader) (*backupReader, error) {
	magic := make([]byte, len(backupMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != backupMagic {
		return nil, fmt.Errorf("not a backup of llmgw's state: %w", ErrBadBackup)
	}
	b := &backupReader{r: r, sum: sha256.New()}
	b.sum.Write(magic)
	return b, nil
}

func (b *backupReader) Read(p []byte) (int, error) {
	buf := make([]byte, max(len(p), sha256.Size))
	for !b.end && len(b.held) <= sha256.Size {
		n, err := b.r.Read(buf)
		b.held = append(b.held, buf[:n]...)
		if err != nil && err != io.EOF {
			return 0, err
		}
		b.end = err == io.EOF
	}
	n := copy(p, b.held[:max(len(b.held)-sha256.Size, 0)])
	b.sum.Write(p[:n])
	b.held = b.held[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// check says whether the backup was read to its end and is what was written.
func (b *backupReader) check() error {
	if _, err := io.Copy(io.Discard, b); err != nil {
		return err
	}
	if !bytes.Equal(b.sum.Sum(nil), b.held) {
		return fmt.Errorf("cut short or changed: %w", ErrBadBackup)
	}
	return nil
}
