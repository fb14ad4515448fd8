package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// UnreadableError says that this version cannot read a row: a later one wrote it, or a
// member that is faulty. Lists go on without it. Nothing here writes to such a row or
// removes it, unless somebody removes it by its key.
//
// Without it nobody may do more than with it. An API key or a session that cannot be
// read is none, so it opens nothing. A tenant or project that cannot be read is missing,
// and requests that count for it are refused. A node whose settings cannot be read gets
// no new replicas, and no selector of labels takes it. A provider, route or model is not
// there, but the names of the latter two go to no provider, see Withheld; what runs of the
// model goes on. A price is the one exception: what a model costs
// cannot be guessed, and what was once charged cannot be taken back, so that the next
// general price counts. Members, bans and tokens are signed, and package mesh reads them
// cell by cell: what it cannot read admits nobody, but bans nobody either.
type UnreadableError struct {
	Key crdt.Key
	// By is the store that wrote the cell that cannot be read; 0: the key is of another
	// shape, and anybody may have made it.
	By  crdt.ReplicaID
	Err error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("row %s cannot be read: %v", e.Key, e.Err)
}

func (e *UnreadableError) Unwrap() error { return e.Err }

// unreadable makes an *UnreadableError of what went wrong in reading a row; nil of nil.
func unreadable(key crdt.Key, row crdt.Row, err error) error {
	if err == nil {
		return nil
	}
	out := &UnreadableError{Key: key, Err: err}
	if cell := (*cellError)(nil); errors.As(err, &cell) {
		out.By = row.Cells[cell.cell].By
	}
	return out
}

// cellError says which cell of a row cannot be read.
type cellError struct {
	cell string
	err  error
}

func (e *cellError) Error() string { return fmt.Sprintf("decode cell %q: %v", e.cell, e.err) }
func (e *cellError) Unwrap() error { return e.err }

// readers read one row of a namespace to see whether it can be read. Settings are not
// among them: each is a document of its own, and one that cannot be used is unset.
func readers() map[string]func(crdt.Key, crdt.Row) error {
	return map[string]func(crdt.Key, crdt.Row) error{
		NamespaceModels:      tried(modelFromRow),
		NamespaceAssignments: tried(assignmentFromRow),
		NamespaceKeys:        tried(byID("API key", keyFromRow)),
		NamespaceSessions:    tried(byID("session", sessionFromRow)),
		NamespaceTenants:     tried(byID("tenant", tenantFromRow)),
		NamespaceProjects:    tried(byID("project", projectFromRow)),
		NamespaceProviders:   tried(byID("provider", providerFromRow)),
		NamespaceRoutes:      tried(routeFromRow),
		NamespacePrices:      tried(priceFromRow),
		NamespaceNodes:       tried(nodeSettingsFromRow),
	}
}

func tried[T any](read func(crdt.Key, crdt.Row) (T, error)) func(crdt.Key, crdt.Row) error {
	return func(key crdt.Key, row crdt.Row) error {
		_, err := read(key, row)
		return err
	}
}

// byID reads documents whose key is their ID alone; what names the document.
func byID[T any](what string, read func(id string, row crdt.Row) (T, error)) func(crdt.Key, crdt.Row) (T, error) {
	return func(key crdt.Key, row crdt.Row) (T, error) {
		parts, err := keyParts(key, what, 1)
		if err != nil {
			var none T
			return none, unreadable(key, row, err)
		}
		return read(parts[0], row)
	}
}

// listRows reads the documents of a namespace that can be read, in the order of their
// keys.
func listRows[T any](c *Catalog, namespace string, read func(crdt.Key, crdt.Row) (T, error)) ([]T, error) {
	items, err := c.store.List(namespace)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", namespace, err)
	}
	out := make([]T, 0, len(items))
	for _, item := range items {
		if v, err := read(item.Key, item.Row); err == nil {
			out = append(out, v)
		}
	}
	return out, nil
}

// readable is for who writes without having read: a row that cannot be read is left as
// it is.
func readable[T any](tx *store.Tx, key crdt.Key, read func(crdt.Key, crdt.Row) (T, error)) error {
	row, _, err := tx.Get(key)
	if err == nil {
		_, err = read(key, row)
	}
	return err
}

// Unreadable lists the rows of these namespaces that cannot be read, without names of all,
// in the order of their keys.
func (c *Catalog) Unreadable(namespaces ...string) ([]*UnreadableError, error) {
	var out []*UnreadableError
	for namespace, read := range readers() {
		if len(namespaces) > 0 && !slices.Contains(namespaces, namespace) {
			continue
		}
		items, err := c.store.List(namespace)
		if err != nil {
			return nil, fmt.Errorf("look for rows that cannot be read: %w", err)
		}
		for _, item := range items {
			if e := (*UnreadableError)(nil); errors.As(read(item.Key, item.Row), &e) {
				out = append(out, e)
			}
		}
	}
	slices.SortFunc(out, func(a, b *UnreadableError) int { return strings.Compare(string(a.Key), string(b.Key)) })
	return out, nil
}

// Withheld are the names, folded, of models and routes that cannot be read. They are the
// mesh's: what is asked of them is not for others, though nobody here can answer it.
func (c *Catalog) Withheld() (map[string]bool, error) {
	names := map[string]bool{}
	for _, namespace := range []string{NamespaceModels, NamespaceRoutes} {
		items, err := c.store.List(namespace)
		if err != nil {
			return nil, fmt.Errorf("look for names of rows that cannot be read: %w", err)
		}
		for _, item := range items {
			parts, err := keyParts(item.Key, namespace, 1)
			if err != nil || readers()[namespace](item.Key, item.Row) == nil {
				continue
			}
			names[parts[0]] = true
			for name, cell := range item.Row.Cells {
				if alias, ok := strings.CutPrefix(name, aliasPrefix); ok && len(cell.Value) > 0 {
					names[alias] = true
				}
			}
		}
	}
	return names, nil
}

// RemoveUnreadable removes a row that cannot be read, by its key; ErrNotFound if there is
// none, or if it can be read: that has ways of its own to end.
func (c *Catalog) RemoveUnreadable(namespace string, parts ...string) error {
	key := crdt.NewKey(namespace, parts...)
	_, err := c.store.Update(func(tx *store.Tx) error {
		row, ok, err := tx.Get(key)
		if err != nil {
			return err
		}
		read := readers()[namespace]
		if !ok || read == nil || read(key, row) == nil {
			return ErrNotFound
		}
		return tx.Delete(key)
	})
	if err != nil {
		return fmt.Errorf("remove row %s: %w", key, err)
	}
	return nil
}

// mayCountFor says whether a row that cannot be read could name id in a cell: it does,
// or the cell itself cannot be read. ErrInUse if so.
func (c *Catalog) mayCountFor(namespace, cell, id string) error {
	items, err := c.store.List(namespace)
	if err != nil {
		return fmt.Errorf("list %s: %w", namespace, err)
	}
	for _, item := range items {
		var of string
		if readers()[namespace](item.Key, item.Row) != nil && (decode(item.Row, cell, &of) != nil || of == id) {
			return fmt.Errorf("%w: row %s, which cannot be read, may be one of its", ErrInUse, item.Key)
		}
	}
	return nil
}
