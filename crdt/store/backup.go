package store

import (
	"fmt"
	"io"
)

// Backup writes everything that the store holds, as of now, in badger's backup format. Writes go on meanwhile.
func (s *Store) Backup(w io.Writer) error {
	s.state.RLock()
	defer s.state.RUnlock()
	if s.closed {
		return ErrClosed
	}
	out := &firstError{w: w}
	if _, err := s.db.Backup(out, 0); err != nil {
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
