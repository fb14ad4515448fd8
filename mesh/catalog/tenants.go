package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// Namespaces of those whom keys count for.
const (
	NamespaceTenants  = "tenants"
	NamespaceProjects = "projects"
)

const (
	// cellMade marks that a tenant or project was made: a row needs a cell.
	cellMade   = "made"
	cellTenant = "tenant"
)

// Tenant is whom projects count for.
type Tenant struct {
	ID string `json:"id"` // its name, folded
	Rules
}

// Project is whom keys count for.
type Project struct {
	ID     string `json:"id"`               // its name, folded
	Tenant string `json:"tenant,omitempty"` // ID; empty: none
	Rules
}

// GroupError says why a tenant or project cannot be as it is. Kind is "tenant"
// or "project".
type GroupError struct{ Kind, Name, Why string }

func (e *GroupError) Error() string { return fmt.Sprintf("%s %q %s", e.Kind, e.Name, e.Why) }

var (
	// ErrTaken: a tenant or project of that name exists.
	ErrTaken = errors.New("exists already")
	// ErrInUse: a tenant has projects, or a project keys.
	ErrInUse = errors.New("is in use")
)

// maxGroupName bounds the name of a tenant or project, in bytes.
const maxGroupName = 64

// foldGroup is the row key of a tenant or project: names differ in more than case.
func foldGroup(kind, name string) (string, error) {
	bare := strings.TrimSpace(name)
	switch {
	case bare == "":
		return "", &GroupError{kind, name, "needs a name"}
	case len(bare) > maxGroupName:
		return "", &GroupError{kind, name, fmt.Sprintf("has a name over %d bytes", maxGroupName)}
	case strings.Trim(bare, plainCharacters) != "" || strings.HasPrefix(bare, "-"):
		return "", &GroupError{kind, name, "has a name with more than letters, digits, '.', '_' and '-', or begins with '-'"}
	}
	return strings.ToLower(bare), nil // after the check: the Kelvin sign folds to k
}

// Tenants lists the tenants by ID, without those that cannot be read: who counts for
// one of them counts for a tenant that is missing.
func (c *Catalog) Tenants() ([]Tenant, error) {
	out, err := listRows(c, NamespaceTenants, byID("tenant", tenantFromRow))
	slices.SortFunc(out, func(a, b Tenant) int { return strings.Compare(a.ID, b.ID) })
	return out, err
}

// Projects lists the projects by ID, without those that cannot be read: who counts for
// one of them counts for a project that is missing.
func (c *Catalog) Projects() ([]Project, error) {
	out, err := listRows(c, NamespaceProjects, byID("project", projectFromRow))
	slices.SortFunc(out, func(a, b Project) int { return strings.Compare(a.ID, b.ID) })
	return out, err
}

func tenantFromRow(id string, row crdt.Row) (Tenant, error) {
	rules, err := readRules(row)
	return Tenant{ID: id, Rules: rules}, unreadable(crdt.NewKey(NamespaceTenants, id), row, err)
}

func projectFromRow(id string, row crdt.Row) (Project, error) {
	rules, err := readRules(row)
	p := Project{ID: id, Rules: rules}
	err = errors.Join(err, decode(row, cellTenant, &p.Tenant))
	return p, unreadable(crdt.NewKey(NamespaceProjects, id), row, err)
}

// CreateTenant adds a tenant and gives it as written. Errors: ErrTaken,
// *GroupError, *RulesError, or one of the store.
func (c *Catalog) CreateTenant(t Tenant) (Tenant, error) {
	id, err := foldGroup("tenant", t.ID)
	if err != nil {
		return Tenant{}, err
	}
	t.ID = id
	return t, c.changeGroup("tenant", NamespaceTenants, id, true, func(*store.Tx, crdt.Row) (have, want map[string]any, err error) {
		want = t.Rules.cells()
		want[cellMade] = true
		return nil, want, t.Check()
	})
}

// UpdateTenant changes a tenant: fn gets it as it stands, and only the cells
// that fn changed are written. Errors as CreateTenant's, and ErrNotFound.
func (c *Catalog) UpdateTenant(name string, fn func(*Tenant) error) error {
	id, err := foldGroup("tenant", name)
	if err != nil {
		return err
	}
	return c.changeGroup("tenant", NamespaceTenants, id, false, func(_ *store.Tx, row crdt.Row) (have, want map[string]any, err error) {
		t, err := tenantFromRow(id, row)
		if err != nil {
			return nil, nil, err
		}
		have = t.Rules.cells()
		if err := fn(&t); err != nil {
			return nil, nil, err
		}
		return have, t.Rules.cells(), t.Check()
	})
}

// CreateProject adds a project. Errors as CreateTenant's; a tenant that does not
// exist is a *GroupError.
func (c *Catalog) CreateProject(p Project) (Project, error) {
	id, err := foldGroup("project", p.ID)
	if err != nil {
		return Project{}, err
	}
	p.ID = id
	err = c.changeGroup("project", NamespaceProjects, id, true, func(tx *store.Tx, _ crdt.Row) (have, want map[string]any, err error) {
		if p.Tenant, err = existing(tx, "tenant", NamespaceTenants, p.Tenant); err != nil {
			return nil, nil, err
		}
		want = p.cells()
		want[cellMade] = true
		return nil, want, p.Check()
	})
	return p, err // the tenant's name is folded now
}

// UpdateProject changes a project as UpdateTenant does a tenant.
func (c *Catalog) UpdateProject(name string, fn func(*Project) error) error {
	id, err := foldGroup("project", name)
	if err != nil {
		return err
	}
	return c.changeGroup("project", NamespaceProjects, id, false, func(tx *store.Tx, row crdt.Row) (have, want map[string]any, err error) {
		p, err := projectFromRow(id, row)
		if err != nil {
			return nil, nil, err
		}
		have = p.cells()
		before := p.Tenant
		if err := fn(&p); err != nil {
			return nil, nil, err
		}
		if p.Tenant != before {
			if p.Tenant, err = existing(tx, "tenant", NamespaceTenants, p.Tenant); err != nil {
				return nil, nil, err
			}
		}
		return have, p.cells(), p.Check()
	})
}

func (p Project) cells() map[string]any {
	cells := p.Rules.cells()
	if p.Tenant != "" {
		cells[cellTenant] = p.Tenant
	}
	return cells
}

// existing finds a tenant or project that something shall count for; an empty
// name is none.
func existing(tx *store.Tx, kind, namespace, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	id, err := foldGroup(kind, name)
	if err != nil {
		return "", err
	}
	_, ok, err := tx.Get(crdt.NewKey(namespace, id))
	if err != nil {
		return "", err
	}
	if !ok {
		return "", &GroupError{kind, name, "does not exist"}
	}
	return id, nil
}

// changeGroup writes what differs between have and want to one row, which has to
// be there, or with create must not.
func (c *Catalog) changeGroup(kind, namespace, id string, create bool, change func(*store.Tx, crdt.Row) (have, want map[string]any, err error)) error {
	_, err := c.store.Update(func(tx *store.Tx) error {
		key := crdt.NewKey(namespace, id)
		row, ok, err := tx.Get(key)
		switch {
		case err != nil:
			return err
		case ok && create:
			return ErrTaken
		case !ok && !create:
			return ErrNotFound
		}
		have, want, err := change(tx, row)
		if err != nil {
			return err
		}
		return writeSet(tx, key, have, want)
	})
	if err != nil {
		return fmt.Errorf("%s %q: %w", kind, id, err)
	}
	return nil
}

// RemoveTenant ends a tenant that has no project, nor one that cannot be read and may
// be its; ErrInUse, ErrNotFound.
func (c *Catalog) RemoveTenant(name string) error {
	return c.removeGroup("tenant", NamespaceTenants, name, func(id string) error {
		projects, err := c.Projects()
		if i := slices.IndexFunc(projects, func(p Project) bool { return p.Tenant == id }); i >= 0 {
			return fmt.Errorf("%w: project %q is one of its", ErrInUse, projects[i].ID)
		}
		return errors.Join(err, c.mayCountFor(NamespaceProjects, cellTenant, id))
	})
}

// RemoveProject ends a project that has no key, nor one that cannot be read and may be
// its; ErrInUse, ErrNotFound.
func (c *Catalog) RemoveProject(name string) error {
	return c.removeGroup("project", NamespaceProjects, name, func(id string) error {
		keys, err := c.APIKeys()
		if i := slices.IndexFunc(keys, func(k APIKey) bool { return k.Project == id }); i >= 0 {
			return fmt.Errorf("%w: key %q is one of its", ErrInUse, keys[i].Name)
		}
		return errors.Join(err, c.mayCountFor(NamespaceKeys, cellKeyProject, id))
	})
}

// removeGroup looks at what uses a group inside of the write, so that nothing begins
// to use it between the two.
func (c *Catalog) removeGroup(kind, namespace, name string, unused func(id string) error) error {
	id, err := foldGroup(kind, name)
	if err != nil {
		return errors.Join(ErrNotFound, err)
	}
	_, err = c.store.Update(func(tx *store.Tx) error {
		if err := unused(id); err != nil {
			return err
		}
		return deleteRow(tx, crdt.NewKey(namespace, id))
	})
	if err != nil {
		return fmt.Errorf("%s %q: %w", kind, name, err)
	}
	return nil
}
