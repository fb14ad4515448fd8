package mesh

import (
	"context"
	"errors"
	"fmt"
)

// metaName keeps a label that was given at run time.
const metaName = "mesh/name"

// givenName is a label together with the configured one that it took the place of:
// once the configuration says something else, that is the newer word.
type givenName struct {
	Name       string `cbor:"1,keyasint"`
	Configured string `cbor:"2,keyasint"`
}

// Name is this box's label, as the others see it.
func (m *Mesh) Name() string { return *m.name.Load() }

// Rename gives this box another label, everywhere and for good: it outlives a
// restart until the configured name changes.
func (m *Mesh) Rename(ctx context.Context, name string) error {
	name = cleanName(name)
	if name == "" {
		return errors.New("rename: a name needs a printable character")
	}
	raw, err := marshal(givenName{Name: name, Configured: m.cfg.Name})
	if err != nil {
		return fmt.Errorf("rename: %w", err)
	}
	if err := m.store.SetMeta(metaName, raw); err != nil {
		return fmt.Errorf("rename: %w", err)
	}
	m.name.Store(&name)
	if err := m.publishSelf(); err != nil {
		return fmt.Errorf("rename: %w", err)
	}
	m.presence.touch()
	m.offerOrWarn(ctx, "name")
	return nil
}

// loadName finds the label to begin with.
func (m *Mesh) loadName() error {
	name := cleanName(m.cfg.Name)
	raw, ok, err := m.store.Meta(metaName)
	if err != nil {
		return fmt.Errorf("read own name: %w", err)
	}
	var given givenName
	if ok && unmarshal(raw, &given) == nil && given.Configured == m.cfg.Name && given.Name != "" {
		name = cleanName(given.Name)
	}
	m.name.Store(&name)
	return nil
}
