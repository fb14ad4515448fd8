package catalog

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// Cells of a model's row. Each alias and each profile is a cell of its own.
const (
	cellName      = "name"
	cellSource    = "source"
	cellLimits    = "limits"
	cellScale     = "scale"
	cellPin       = "pin"
	cellState     = "state"
	cellLabels    = "labels"
	cellDeclared  = "declared"
	cellUnloaded  = "unloaded"
	aliasPrefix   = "alias/"
	profilePrefix = "profile/"
)

// IsDeclared says whether a config file keeps the model in this row. A row that
// cannot be read is nobody's.
func IsDeclared(row crdt.Row) bool {
	var d Declaration
	return decode(row, cellDeclared, &d) == nil && d.Node != ""
}

// ErrNotFound says that no document has the asked ID.
var ErrNotFound = errors.New("not found")

// ExistsError says that a name is taken by another source.
type ExistsError struct {
	Name   string
	Source Source // what the name holds now
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("model %q exists already with source %s", e.Name, e.Source.URI)
}

// NameError says why a model name cannot be used.
type NameError struct{ Name, Why string }

func (e *NameError) Error() string { return fmt.Sprintf("model name %q: %s", e.Name, e.Why) }

const (
	// maxNameBytes keeps names usable in headers, tables and metric labels.
	maxNameBytes = 96 * 3
	// maxAliasBytes is what the name of an alias's cell has room for.
	maxAliasBytes = crdt.MaxNameBytes - len(aliasPrefix)
)

// CheckName says whether a model or alias may have this name: letters, digits,
// '.', '_', '-' and '/', one ':' at most, nothing that reads as a path trick.
func CheckName(name string) error {
	fail := func(why string) error { return &NameError{Name: name, Why: why} }
	switch {
	case name == "":
		return fail("is empty")
	case len(name) > maxNameBytes:
		return fail(fmt.Sprintf("is longer than %d bytes", maxNameBytes))
	case strings.Contains(name, "@"):
		return fail("'@' is reserved for model@node")
	case strings.Count(name, ":") > 1:
		return fail("holds more than one ':'")
	}
	for _, r := range name {
		if !strings.ContainsRune(plainCharacters+"/:", r) {
			return fail(fmt.Sprintf("holds %q; letters, digits, '.', '_', '-', '/' and one ':' are allowed", r))
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return fail("has an empty, '.' or '..' part between slashes")
		}
	}
	return nil
}

func modelKey(id string) crdt.Key { return crdt.NewKey(NamespaceModels, id) }

// Models lists the catalog, ordered by ID, without entries that cannot be read.
func (c *Catalog) Models() ([]Model, error) {
	models, err := listRows(c, NamespaceModels, modelFromRow)
	slices.SortFunc(models, func(a, b Model) int { return strings.Compare(a.ID, b.ID) })
	return models, err
}

// UnreadableModels are the IDs of entries that cannot be read.
func (c *Catalog) UnreadableModels() ([]string, error) {
	rows, err := c.Unreadable(NamespaceModels)
	var out []string
	for _, e := range rows {
		if parts, err := keyParts(e.Key, "model", 1); err == nil {
			out = append(out, parts[0])
		}
	}
	return out, err
}

// Model reads one entry by ID; ErrNotFound if there is none, *UnreadableError.
func (c *Catalog) Model(id string) (Model, error) {
	row, ok, err := c.store.Get(modelKey(id))
	if err != nil {
		return Model{}, fmt.Errorf("read model %q: %w", id, err)
	}
	if !ok {
		return Model{}, fmt.Errorf("model %q: %w", id, ErrNotFound)
	}
	return modelFromRow(modelKey(id), row)
}

// Resolve finds the model that a client means by name, without case: an ID,
// else an alias. Of several entries with one alias the lowest ID is taken.
func Resolve(models []Model, name string) (Model, bool) {
	folded := FoldName(name)
	if i := slices.IndexFunc(models, func(m Model) bool { return m.ID == folded }); i >= 0 {
		return models[i], true
	}
	var found *Model
	for i, m := range models {
		hasAlias := slices.ContainsFunc(m.Aliases, func(a string) bool { return FoldName(a) == folded })
		if hasAlias && (found == nil || m.ID < found.ID) {
			found = &models[i]
		}
	}
	if found == nil {
		return Model{}, false
	}
	return *found, true
}

// CreateModel adds an entry. The same name with the same digest is the same
// entry and changes nothing; with another digest it is an *ExistsError. What
// cannot be kept is a *NameError, *ModelError or *LabelError. An entry of that name
// that cannot be read is an *UnreadableError.
func (c *Catalog) CreateModel(m Model) error {
	if err := CheckName(m.Name); err != nil {
		return err
	}
	m.ID = FoldName(m.Name)
	if m.State == "" {
		m.State = ModelServed
	}
	_, err := c.store.Update(func(tx *store.Tx) error {
		row, ok, err := tx.Get(modelKey(m.ID))
		if err != nil {
			return err
		}
		if !ok {
			return writeModel(tx, Model{}, m)
		}
		have, err := modelFromRow(modelKey(m.ID), row)
		if err != nil {
			return err
		}
		if have.Source.Digest != m.Source.Digest {
			return &ExistsError{Name: have.Name, Source: have.Source}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("create model: %w", err)
	}
	return nil
}

// UpdateModel changes one entry: fn gets it as it stands, and only the cells
// that fn changed are written. Errors: as CreateModel's, ErrNotFound, *UnreadableError.
func (c *Catalog) UpdateModel(id string, fn func(*Model) error) error {
	return c.updateModel(id, fn, func(*store.Tx, crdt.Row) error { return nil })
}

// UnloadModel is UpdateModel that marks the model as unloaded: what requests asked
// for before ends. The mark is the stamp of a cell, which only grows, in a merge too;
// the cell holds the mark before, so that no two unloads write the same.
func (c *Catalog) UnloadModel(id string, fn func(*Model) error) error {
	return c.updateModel(id, fn, func(tx *store.Tx, row crdt.Row) error {
		return set(tx, modelKey(id), cellUnloaded, uint64(row.Cells[cellUnloaded].At))
	})
}

// updateModel is UpdateModel with more to be written, given the row as it was.
func (c *Catalog) updateModel(id string, fn func(*Model) error, more func(*store.Tx, crdt.Row) error) error {
	_, err := c.store.Update(func(tx *store.Tx) error {
		row, ok, err := tx.Get(modelKey(id))
		if err != nil {
			return err
		}
		if !ok {
			return ErrNotFound
		}
		have, err := modelFromRow(modelKey(id), row)
		if err != nil {
			return err
		}
		want, err := modelFromRow(modelKey(id), row) // shares nothing with have
		if err != nil {
			return err
		}
		if err := fn(&want); err != nil {
			return err
		}
		want.ID = have.ID
		if FoldName(want.Name) != have.ID {
			return &ModelError{have.Name, "name", fmt.Sprintf("%q is another one: it may differ in case alone", want.Name)}
		}
		if err := writeModel(tx, have, want); err != nil {
			return err
		}
		return more(tx, row)
	})
	if err != nil {
		return fmt.Errorf("update model %q: %w", id, err)
	}
	return nil
}

// DeleteModel removes an entry; ErrNotFound if there is none.
func (c *Catalog) DeleteModel(id string) error {
	_, err := c.store.Update(func(tx *store.Tx) error { return deleteRow(tx, modelKey(id)) })
	if err != nil {
		return fmt.Errorf("delete model %q: %w", id, err)
	}
	return nil
}

// modelFromRow takes names from the key and from the cells' names, which are there
// once; a cell only says how they are spelled.
func modelFromRow(key crdt.Key, row crdt.Row) (Model, error) {
	parts, err := keyParts(key, "model", 1)
	if err != nil {
		return Model{}, unreadable(key, row, err)
	}
	m := Model{ID: parts[0], Name: parts[0], State: ModelServed, Created: row.Cells[cellSource].At.Time().Unix(), Unloaded: uint64(row.Cells[cellUnloaded].At)}
	err = errors.Join(
		decode(row, cellName, &m.Name), decode(row, cellSource, &m.Source), decode(row, cellLimits, &m.Limits),
		decode(row, cellScale, &m.Scale), decode(row, cellPin, &m.Pin), decode(row, cellState, &m.State),
		decode(row, cellLabels, &m.Labels), decode(row, cellDeclared, &m.Declared))
	if FoldName(m.Name) != m.ID {
		m.Name = m.ID
	}
	for cell, value := range row.Cells {
		if len(value.Value) == 0 {
			continue
		}
		if alias, ok := strings.CutPrefix(cell, aliasPrefix); ok {
			spelled := alias
			err = errors.Join(err, decode(row, cell, &spelled))
			if FoldName(spelled) == alias {
				alias = spelled
			}
			m.Aliases = append(m.Aliases, alias)
		}
		if id, ok := strings.CutPrefix(cell, profilePrefix); ok {
			var p Profile
			err = errors.Join(err, decode(row, cell, &p))
			p.ID = id
			m.Profiles = append(m.Profiles, p)
		}
	}
	slices.Sort(m.Aliases)
	slices.SortFunc(m.Profiles, func(a, b Profile) int { return strings.Compare(a.ID, b.ID) })
	if err != nil {
		return Model{}, unreadable(key, row, err)
	}
	return m, nil
}

// writeModel writes the cells in which want differs from have.
func writeModel(tx *store.Tx, have, want Model) error {
	if err := CheckModel(want); err != nil {
		return err
	}
	return writeSet(tx, modelKey(want.ID), have.cells(), want.cells())
}

func (m Model) cells() map[string]any {
	cells := map[string]any{
		cellName: m.Name, cellSource: m.Source, cellLimits: m.Limits, cellScale: m.Scale,
		cellPin: m.Pin, cellState: m.State, cellLabels: m.Labels, cellDeclared: m.Declared,
	}
	for _, a := range m.Aliases {
		cells[aliasPrefix+FoldName(a)] = a
	}
	for _, p := range m.Profiles {
		cells[profilePrefix+p.ID] = p
	}
	return cells
}

// FullError says that a row has no place for another cell. An alias, profile, label or
// key that was removed leaves its cell behind, empty: without it an edit that another
// box made before would bring it back. The same name takes the same cell again.
type FullError struct{ Key crdt.Key }

func (e *FullError) Error() string {
	return fmt.Sprintf("row %s has no place for another name: it has had about %d, those that were removed among them", e.Key, maxNames)
}

// maxNames is how many cells a row may have before it takes no other name: the rest is
// for settings, of which not each has a cell yet.
const maxNames = crdt.MaxCells - 24

// checkPlace says whether the new names of want have a place in a row: a *FullError if
// not.
func checkPlace(tx *store.Tx, key crdt.Key, have, want map[string]any) error {
	row, _, err := tx.Get(key)
	if err != nil {
		return err
	}
	names := 0
	for cell, v := range want {
		if _, there := row.Cells[cell]; !there && strings.Contains(cell, "/") && !reflect.DeepEqual(have[cell], v) {
			names++
		}
	}
	if names > 0 && len(row.Cells)+names > maxNames {
		return &FullError{key}
	}
	return nil
}

// writeSet writes changed members of a set of cells and empties those gone. Errors:
// *FullError, or one of the store.
func writeSet(tx *store.Tx, key crdt.Key, have, want map[string]any) error {
	if err := checkPlace(tx, key, have, want); err != nil {
		return err
	}
	for cell, v := range want {
		if reflect.DeepEqual(have[cell], v) {
			continue
		}
		if err := set(tx, key, cell, v); err != nil {
			return err
		}
	}
	for cell := range have {
		if _, kept := want[cell]; kept {
			continue
		}
		if err := tx.Remove(key, cell); err != nil {
			return err
		}
	}
	return nil
}
