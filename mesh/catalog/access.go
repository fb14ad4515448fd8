package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// cellRecord holds what is written once and never edited: who a key is, a
// session. Ending it deletes the row, so an end wins over everything.
const cellRecord = "record"

// cellFirst marks the key that the first start made: it does not make a mesh
// of one worth keeping. Package mesh reads the mark.
const cellFirst = "first"

// Scopes of an API key.
const (
	ScopeInfer   = "infer"
	ScopeMetrics = "metrics"
	ScopeAdmin   = "admin"
)

// APIKey is what the mesh stores of a key: never the secret.
type APIKey struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Hash    []byte   `cbor:"hash" json:"-"` // SHA-256 of the secret
	Scopes  []string `json:"scopes"`
	Created int64    `json:"created"` // unix seconds
	Creator string   `json:"creator"` // peer ID of the node that made it
	First   bool     `json:"first,omitempty"`

	// What follows stands in cells of its own, may be edited, and is absent from
	// keys that older versions made.

	Project string   `cbor:"-" json:"project,omitempty"` // ID; empty: none
	Models  []string `cbor:"-" json:"models,omitempty"`  // patterns of names that it may use; none: all
	Nodes   Selector `cbor:"-" json:"nodes,omitzero"`    // labels of nodes whose replicas may answer it
	Expires int64    `cbor:"-" json:"expires,omitempty"` // unix seconds; 0: never
	Origins []string `cbor:"-" json:"origins,omitempty"` // of web pages that may use it, or "*"; none: no page
	Rules
}

// Session is one browser that redeemed a UI link.
type Session struct {
	ID      string // hex SHA-256 of the cookie's value
	Created int64  // unix seconds
	Expires int64  // unix seconds
	Creator string // peer ID of the node whose link was redeemed
}

// APIKey reads one key by ID; ErrNotFound for one that never was or is revoked.
func (c *Catalog) APIKey(id string) (APIKey, error) {
	row, ok, err := c.store.Get(crdt.NewKey(NamespaceKeys, id))
	if err != nil {
		return APIKey{}, fmt.Errorf("read API key: %w", err)
	}
	if !ok {
		return APIKey{}, fmt.Errorf("API key %s: %w", id, ErrNotFound)
	}
	return keyFromRow(id, row)
}

// APIKeys lists the keys that are in force, oldest first.
func (c *Catalog) APIKeys() ([]APIKey, error) {
	items, err := c.store.List(NamespaceKeys)
	if err != nil {
		return nil, fmt.Errorf("list API keys: %w", err)
	}
	keys := make([]APIKey, 0, len(items))
	for _, item := range items {
		parts, err := keyParts(item.Key, "API key", 1)
		if err != nil {
			return nil, err
		}
		k, err := keyFromRow(parts[0], item.Row)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b APIKey) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.ID, b.ID))
	})
	return keys, nil
}

// RevokeAPIKey ends a key for good; ErrNotFound if there is none.
func (c *Catalog) RevokeAPIKey(id string) error { return c.deleteRecord(NamespaceKeys, id) }

// PutSession stores a new session.
func (c *Catalog) PutSession(s Session) error {
	return c.putRecord(NamespaceSessions, s.ID, s)
}

// Session reads one session; ErrNotFound for one that never was or has ended.
func (c *Catalog) Session(id string) (Session, error) {
	var s Session
	if err := c.record(NamespaceSessions, id, &s); err != nil {
		return Session{}, err
	}
	s.ID = id
	return s, nil
}

// DropExpiredSessions ends the sessions whose time is over at now.
func (c *Catalog) DropExpiredSessions(now time.Time) error {
	items, err := c.store.List(NamespaceSessions)
	if err != nil {
		return fmt.Errorf("list sessions: %w", err)
	}
	var unread []error // one that another version wrote keeps none of the others
	_, err = c.store.Update(func(tx *store.Tx) error {
		for _, item := range items {
			row, _, err := tx.Get(item.Key) // it may have been prolonged meanwhile
			if err != nil {
				return err
			}
			var s Session
			if err := decode(row, cellRecord, &s); err != nil {
				unread = append(unread, fmt.Errorf("%s: %w", item.Key, err))
				continue
			}
			if s.Expires > now.Unix() {
				continue
			}
			if err := tx.Delete(item.Key); err != nil {
				return err
			}
		}
		return nil
	})
	if err = errors.Join(append(unread, err)...); err != nil {
		return fmt.Errorf("drop expired sessions: %w", err)
	}
	return nil
}

// DeleteSession ends a session; ErrNotFound if there is none.
func (c *Catalog) DeleteSession(id string) error { return c.deleteRecord(NamespaceSessions, id) }

// putRecord writes a record unless it was ended: what is revoked stays so,
// also against a writer that had read it before.
func (c *Catalog) putRecord(namespace, id string, v any) error {
	_, err := c.store.Update(func(tx *store.Tx) error {
		key := crdt.NewKey(namespace, id)
		row, ok, err := tx.Get(key)
		if err != nil {
			return err
		}
		if !ok && row.Length > 0 {
			return ErrNotFound
		}
		return set(tx, key, cellRecord, v)
	})
	if err != nil {
		return fmt.Errorf("write %s row: %w", namespace, err)
	}
	return nil
}

func (c *Catalog) record(namespace, id string, out any) error {
	row, ok, err := c.store.Get(crdt.NewKey(namespace, id))
	if err != nil {
		return fmt.Errorf("read %s row: %w", namespace, err)
	}
	if !ok {
		return fmt.Errorf("%s row: %w", namespace, ErrNotFound)
	}
	return decode(row, cellRecord, out)
}

func (c *Catalog) deleteRecord(namespace, id string) error {
	_, err := c.store.Update(func(tx *store.Tx) error { return deleteRow(tx, crdt.NewKey(namespace, id)) })
	if err != nil {
		return fmt.Errorf("end %s row: %w", namespace, err)
	}
	return nil
}

// deleteRow removes a document; ErrNotFound if there is none.
func deleteRow(tx *store.Tx, key crdt.Key) error {
	_, ok, err := tx.Get(key)
	if err != nil {
		return err
	}
	if !ok {
		return ErrNotFound
	}
	return tx.Delete(key)
}
