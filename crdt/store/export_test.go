package store

// FailSync makes every sync to disk fail from now on.
func (s *Store) FailSync(err error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	s.flush = func() error { return err }
}

// OnSync has fn called after each sync to disk, with the writer held.
func (s *Store) OnSync(fn func()) {
	s.writer.Lock()
	defer s.writer.Unlock()
	flush := s.flush
	s.flush = func() error {
		err := flush()
		fn()
		return err
	}
}
