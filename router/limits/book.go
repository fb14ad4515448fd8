package limits

import (
	"fmt"
	"log/slog"
	"sync"

	"llmgw/crdt/store"
	"llmgw/mesh/catalog"
)

// Documents are what a CatalogBook reads.
type Documents interface {
	Tenants() ([]catalog.Tenant, error)
	Projects() ([]catalog.Project, error)
	Prices() ([]catalog.Price, error)
	Watch(namespaces ...string) *store.Watch
}

// CatalogBook is a Book of the mesh's documents. It is read anew when one of them
// changed, so a change is in force from the next request on.
type CatalogBook struct {
	docs  Documents
	watch *store.Watch
	log   *slog.Logger

	mu    sync.Mutex
	page  *page // as last read; nil: never
	stale bool  // it has changed since, and could not be read
}

var _ Book = (*CatalogBook)(nil)

type page struct {
	projects map[string]catalog.Project
	tenants  map[string]catalog.Tenant
	prices   map[[2]string]catalog.Price // by model and provider
}

// NewBook reads docs; Close has to be called.
func NewBook(docs Documents, log *slog.Logger) *CatalogBook {
	return &CatalogBook{docs: docs, log: log,
		watch: docs.Watch(catalog.NamespaceTenants, catalog.NamespaceProjects, catalog.NamespacePrices)}
}

// Close ends the watch of the documents.
func (b *CatalogBook) Close() { b.watch.Close() }

// Project finds a project by ID.
func (b *CatalogBook) Project(id string) (catalog.Project, bool) {
	p, ok := b.read().projects[id]
	return p, ok
}

// Tenant finds a tenant by ID.
func (b *CatalogBook) Tenant(id string) (catalog.Tenant, bool) {
	t, ok := b.read().tenants[id]
	return t, ok
}

// Price finds the price of a model of a provider, else of the provider, else of the
// model.
func (b *CatalogBook) Price(model, provider string) (catalog.Price, bool) {
	prices := b.read().prices
	model, provider = catalog.FoldName(model), catalog.FoldName(provider)
	for _, key := range [][2]string{{model, provider}, {"", provider}, {model, ""}} {
		if p, ok := prices[key]; ok && key != [2]string{} {
			return p, true
		}
	}
	return catalog.Price{}, false
}

// read gives the documents of now. When they cannot be read, those of before hold:
// a store that fails must not lift limits.
func (b *CatalogBook) read() *page {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.watch.C:
		b.stale = true
	default:
	}
	if b.page != nil && !b.stale {
		return b.page
	}
	next, err := b.load()
	if err == nil {
		b.page, b.stale = next, false
	} else {
		b.log.Error("tenants, projects and prices are as before", "error", err)
		if b.page == nil {
			return &page{}
		}
	}
	return b.page
}

func (b *CatalogBook) load() (*page, error) {
	tenants, err := b.docs.Tenants()
	if err != nil {
		return nil, fmt.Errorf("read tenants: %w", err)
	}
	projects, err := b.docs.Projects()
	if err != nil {
		return nil, fmt.Errorf("read projects: %w", err)
	}
	prices, err := b.docs.Prices()
	if err != nil {
		return nil, fmt.Errorf("read prices: %w", err)
	}
	p := &page{map[string]catalog.Project{}, map[string]catalog.Tenant{}, map[[2]string]catalog.Price{}}
	for _, t := range tenants {
		p.tenants[t.ID] = t
	}
	for _, project := range projects {
		p.projects[project.ID] = project
	}
	for _, price := range prices {
		p.prices[[2]string{price.Model, price.Provider}] = price
	}
	return p, nil
}
