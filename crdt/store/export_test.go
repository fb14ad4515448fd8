package store

// FailSync makes every sync to disk fail from now on.
func (s *Store) FailSync(err error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	s.flush = func() error { return err }
}
