package catalog

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// Cells of an API key beside its record.
const (
	cellKeyProject = "project"
	cellKeyModels  = "models"
	cellKeyNodes   = "nodes"
	cellKeyExpires = "expires"
	cellKeyOrigins = "origins"
)

// maxPatterns bounds the model patterns of a key.
const maxPatterns = 100

// KeyError says which setting of a key cannot be as it is.
type KeyError struct{ Field, Why string }

func (e *KeyError) Error() string { return fmt.Sprintf("an API key's %s %s", e.Field, e.Why) }

// PutAPIKey stores a new key. What is revoked stays so. Errors: *KeyError,
// *RulesError, *GroupError, *LabelError, ErrNotFound for a key that was revoked,
// *UnreadableError.
func (c *Catalog) PutAPIKey(k APIKey) error {
	_, err := c.store.Update(func(tx *store.Tx) error {
		key := crdt.NewKey(NamespaceKeys, k.ID)
		row, ok, err := tx.Get(key)
		if err != nil {
			return err
		}
		if !ok && row.Length > 0 {
			return ErrNotFound
		}
		if _, err := keyFromRow(k.ID, row); err != nil {
			return err
		}
		if k.Project, err = existing(tx, "project", NamespaceProjects, k.Project); err != nil {
			return err
		}
		if err := k.check(); err != nil {
			return err
		}
		cells := k.cells()
		cells[cellRecord] = k
		if k.First {
			cells[cellFirst] = true
		}
		return writeSet(tx, key, nil, cells)
	})
	if err != nil {
		return fmt.Errorf("write API key: %w", err)
	}
	return nil
}

// UpdateAPIKey changes a key: fn gets it as it stands, and only the cells that fn
// changed are written. Who the key is, its scopes and its hash never change. Errors
// as PutAPIKey's.
func (c *Catalog) UpdateAPIKey(id string, fn func(*APIKey) error) error {
	_, err := c.store.Update(func(tx *store.Tx) error {
		key := crdt.NewKey(NamespaceKeys, id)
		row, ok, err := tx.Get(key)
		if err != nil {
			return err
		}
		if !ok {
			return ErrNotFound
		}
		k, err := keyFromRow(id, row)
		if err != nil {
			return err
		}
		have, before := k.cells(), k.Project
		if err := fn(&k); err != nil {
			return err
		}
		if k.Project != before {
			if k.Project, err = existing(tx, "project", NamespaceProjects, k.Project); err != nil {
				return err
			}
		}
		if err := k.check(); err != nil {
			return err
		}
		return writeSet(tx, key, have, k.cells())
	})
	if err != nil {
		return fmt.Errorf("update API key %s: %w", id, err)
	}
	return nil
}

func (k APIKey) cells() map[string]any {
	cells := k.Rules.cells()
	if k.Project != "" {
		cells[cellKeyProject] = k.Project
	}
	if len(k.Models) > 0 {
		cells[cellKeyModels] = slices.Clone(k.Models)
	}
	if len(k.Nodes.Require)+len(k.Nodes.Forbid) > 0 {
		cells[cellKeyNodes] = Selector{maps.Clone(k.Nodes.Require), maps.Clone(k.Nodes.Forbid)}
	}
	if k.Expires != 0 {
		cells[cellKeyExpires] = k.Expires
	}
	if len(k.Origins) > 0 {
		cells[cellKeyOrigins] = slices.Clone(k.Origins)
	}
	return cells
}

func (k APIKey) check() error {
	switch {
	case k.Expires < 0:
		return &KeyError{"expiry", "lies before 1970"}
	case len(k.Models) > maxPatterns:
		return &KeyError{"models", fmt.Sprintf("are more than %d patterns", maxPatterns)}
	}
	for _, pattern := range k.Models {
		if err := checkPattern(pattern); err != nil {
			return err
		}
	}
	if len(k.Origins) > maxPatterns {
		return &KeyError{"origins", fmt.Sprintf("are more than %d", maxPatterns)}
	}
	for _, origin := range k.Origins {
		if err := checkOrigin(origin); err != nil {
			return err
		}
	}
	if err := k.Nodes.check(); err != nil {
		return err
	}
	if err := k.Check(); err != nil {
		return err
	}
	cells := k.cells()
	cells[cellRecord] = k
	if cell, why := checkCells(cells); why != "" {
		return &KeyError{cell, why}
	}
	return nil
}

// checkOrigin takes what a browser sends as Origin, or * for any.
func checkOrigin(origin string) error {
	if origin == "*" || isOrigin(origin) {
		return nil
	}
	return &KeyError{"origins", fmt.Sprintf("cannot have %q: write it as https://app.example or http://localhost:3000, without a path, or * for any page", origin)}
}

// isOrigin says whether an origin is spelled as browsers do: no port that the scheme
// stands for, and nothing that a name of a host cannot have, which is never equal
// to what comes.
func isOrigin(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Hostname() == "" || u.Scheme == "" || origin != u.Scheme+"://"+u.Host || origin != strings.ToLower(origin) {
		return false
	}
	if strings.HasSuffix(u.Host, ":") || u.Port() != "" && (!isPort(u.Port()) || u.Port() == defaultPort(u.Scheme)) {
		return false
	}
	return !strings.ContainsFunc(u.Host, func(c rune) bool { return c <= ' ' || c > '~' || c == '*' || c == '%' || c == ',' })
}

// checkPattern takes a model name in which '*' stands for any characters.
func checkPattern(pattern string) error {
	if strings.Trim(pattern, "*") == "" && pattern != "" {
		return nil
	}
	if err := CheckName(strings.ReplaceAll(pattern, "*", "x")); err != nil {
		return &KeyError{"models", fmt.Sprintf("cannot have %q: a model name in which '*' stands for anything is needed", pattern)}
	}
	return nil
}

// keyFromRow reads a key of this or an older shape.
func keyFromRow(id string, row crdt.Row) (APIKey, error) {
	var k APIKey
	err := decode(row, cellRecord, &k)
	k.ID = id
	rules, rulesErr := readRules(row)
	k.Rules = rules
	err = errors.Join(err, rulesErr, decode(row, cellKeyProject, &k.Project), decode(row, cellKeyModels, &k.Models),
		decode(row, cellKeyNodes, &k.Nodes), decode(row, cellKeyExpires, &k.Expires),
		decode(row, cellKeyOrigins, &k.Origins))
	if err != nil {
		return APIKey{}, unreadable(crdt.NewKey(NamespaceKeys, id), row, err)
	}
	return k, nil
}
