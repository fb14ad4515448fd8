package node

import (
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// keyType marks the identity file: the seed of an ed25519 key in PEM.
const keyType = "LLMGW ED25519 SEED"

// loadIdentity reads the box's key, or makes it: once, 0600, in a 0700
// directory, never overwritten.
func loadIdentity(stateDir string, entropy io.Reader) (ed25519.PrivateKey, error) {
	path := filepath.Join(stateDir, "identity", "key.pem")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return createIdentity(path, entropy)
	}
	if err != nil {
		return nil, fmt.Errorf("read identity key: %w", err)
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("read identity key %s: others may read it (mode %04o); run: chmod 600 %s", path, info.Mode().Perm(), path)
	}
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != keyType || len(block.Bytes) != ed25519.SeedSize {
		return nil, fmt.Errorf("read identity key %s: the file is damaged; restore it from a backup, or move it away to become a new box", path)
	}
	return ed25519.NewKeyFromSeed(block.Bytes), nil
}

func createIdentity(path string, entropy io.Reader) (ed25519.PrivateKey, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(entropy, seed); err != nil {
		return nil, fmt.Errorf("make identity key: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make identity directory: %w", err)
	}
	if err := writeFileOnce(path, encodeSeed(seed)); err != nil {
		return nil, fmt.Errorf("write identity key: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

func encodeSeed(seed []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: seed})
}

// replaceIdentity puts another key in the place of the box's own and keeps the
// former one beside it.
func replaceIdentity(stateDir string, seed []byte, now time.Time) error {
	dir := filepath.Join(stateDir, "identity")
	path, fresh := filepath.Join(dir, "key.pem"), filepath.Join(dir, "key.new")
	former := filepath.Join(dir, "key-until-"+now.UTC().Format("20060102T150405Z")+".pem")
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace identity key: %w", err)
	}
	if err := writeFileOnce(fresh, encodeSeed(seed)); err != nil {
		return fmt.Errorf("replace identity key: %w", err)
	}
	if err := os.Link(path, former); err != nil {
		return fmt.Errorf("replace identity key: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("replace identity key: %w", err)
	}
	return nil
}

// writeFileOnce writes a secret file whole or not at all: a crash leaves
// either no file or the finished one, and an existing one is never replaced.
func writeFileOnce(path string, data []byte) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".new-*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
