package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
)

// originRecord remembers what a source that never changes gave, so that the
// next pull of it asks nobody.
type originRecord struct {
	Version int    `json:"version"`
	Source  string `json:"source"`
	Digest  string `json:"digest"`
}

const originVersion = 1

// maxOrigin bounds a record: a source and a digest.
const maxOrigin = 16 << 10

func originName(source string) string {
	sum := sha256.Sum256([]byte(source))
	return originDir + "/" + hex.EncodeToString(sum[:]) + ".json"
}

// origin gives the digest recorded for a source; empty when there is none.
func (s *Store) origin(source string) string {
	f, err := s.root.Open(originName(source))
	if err != nil {
		return ""
	}
	defer f.Close()
	var rec originRecord
	if json.NewDecoder(io.LimitReader(f, maxOrigin)).Decode(&rec) != nil ||
		rec.Version != originVersion || rec.Source != source {
		return ""
	}
	return rec.Digest
}

// setOrigin records a source's digest. Without it the file is only fetched
// once more, so a failure is a log line.
func (s *Store) setOrigin(source, digest string) {
	if err := s.writeOrigin(source, digest); err != nil {
		s.log.Warn("origin of weights not recorded", slog.String("source", source), slog.Any("error", err))
	}
}

func (s *Store) writeOrigin(source, digest string) error {
	raw, err := json.Marshal(originRecord{Version: originVersion, Source: source, Digest: digest})
	if err != nil {
		return err
	}
	partial := s.partialName()
	if err := s.root.WriteFile(partial, raw, 0o644); err != nil {
		return err
	}
	if err := s.root.Rename(partial, originName(source)); err != nil {
		return fmt.Errorf("rename: %w", err)
	}
	return nil
}
