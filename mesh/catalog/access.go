package catalog

import (
	"cmp"
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

// APIKey reads one key by ID; ErrNotFound for one that never was or is revoked,
// *UnreadableError.
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

// APIKeys lists the keys that are in force, oldest first. One that cannot be read is
// not: it opens nothing.
func (c *Catalog) APIKeys() ([]APIKey, error) {
	keys, err := listRows(c, NamespaceKeys, byID("API key", keyFromRow))
	slices.SortFunc(keys, func(a, b APIKey) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.ID, b.ID))
	})
	return keys, err
}

// HasAPIKeys says whether the mesh has keys, be they readable or not.
func (c *Catalog) HasAPIKeys() (bool, error) {
	items, err := c.store.List(NamespaceKeys)
	if err != nil {
		return false, fmt.Errorf("look for API keys: %w", err)
	}
	return len(items) > 0, nil
}

// RevokeAPIKey ends a key for good; ErrNotFound if there is none.
func (c *Catalog) RevokeAPIKey(id string) error { return c.deleteRecord(NamespaceKeys, id) }

// PutSession stores a new session, or prolongs one, unless it was ended: what is ended
// stays so, also against a writer that had read it before. Errors: ErrNotFound,
// *UnreadableError.
func (c *Catalog) PutSession(s Session) error {
	_, err := c.store.Update(func(tx *store.Tx) error {
		row, ok, err := tx.Get(sessionKey(s.ID))
		if err != nil {
			return err
		}
		if !ok && row.Length > 0 {
			return ErrNotFound
		}
		if _, err := sessionFromRow(s.ID, row); err != nil {
			return err
		}
		return set(tx, sessionKey(s.ID), cellRecord, s)
	})
	if err != nil {
		return fmt.Errorf("write session: %w", err)
	}
	return nil
}

// Session reads one session; ErrNotFound for one that never was or has ended,
// *UnreadableError.
func (c *Catalog) Session(id string) (Session, error) {
	row, ok, err := c.store.Get(sessionKey(id))
	if err != nil {
		return Session{}, fmt.Errorf("read session: %w", err)
	}
	if !ok {
		return Session{}, fmt.Errorf("session: %w", ErrNotFound)
	}
	return sessionFromRow(id, row)
}

func sessionKey(id string) crdt.Key { return crdt.NewKey(NamespaceSessions, id) }

func sessionFromRow(id string, row crdt.Row) (Session, error) {
	var s Session
	if err := decode(row, cellRecord, &s); err != nil {
		return Session{}, unreadable(sessionKey(id), row, err)
	}
	s.ID = id
	return s, nil
}

// DropExpiredSessions ends the sessions whose time is over at now, as far as they can
// be read.
func (c *Catalog) DropExpiredSessions(now time.Time) error {
	items, err := c.store.List(NamespaceSessions)
	if err != nil {
		return fmt.Errorf("list sessions: %w", err)
	}
	_, err = c.store.Update(func(tx *store.Tx) error {
		for _, item := range items {
			row, _, err := tx.Get(item.Key) // it may have been prolonged meanwhile
			if err != nil {
				return err
			}
			var s Session
			if decode(row, cellRecord, &s) != nil || s.Expires > now.Unix() {
				continue
			}
			if err := tx.Delete(item.Key); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("drop expired sessions: %w", err)
	}
	return nil
}

// DeleteSession ends a session; ErrNotFound if there is none.
func (c *Catalog) DeleteSession(id string) error { return c.deleteRecord(NamespaceSessions, id) }

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
