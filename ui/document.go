package ui

import "context"

// DocumentAdmin writes what admins made of the mesh into one document, and makes
// the mesh as a document says.
type DocumentAdmin interface {
	Export(ctx context.Context) (Document, error)
	// Apply validates the whole document before it writes anything.
	Apply(ctx context.Context, r ApplyRequest) (ApplyResult, error)
}

// Document is the answer of GET /admin/v1/export: YAML, without secrets.
type Document struct {
	Schema
	Document string `json:"document"`
}

// ApplyRequest asks to make the mesh as a document says.
type ApplyRequest struct {
	Document string `json:"document"` // YAML
	DryRun   bool   `json:"dry_run"`  // write nothing
	// Prune removes what the sections of the document do not name.
	Prune bool `json:"prune"`
}

// Actions of a Change.
const (
	ActionCreate = "create"
	ActionChange = "change"
	ActionDelete = "delete"
)

// Change is one difference between the mesh and a document.
type Change struct {
	Action string `json:"action"`
	Kind   string `json:"kind"` // model, node, setting, tenant, project, price, route
	Name   string `json:"name"`
	Field  string `json:"field"` // of a model or node that changes
	Before string `json:"before"`
	After  string `json:"after"`
}

// ApplyResult tells what was changed, or with DryRun would be.
type ApplyResult struct {
	Schema
	DryRun   bool         `json:"dry_run"`
	Changes  List[Change] `json:"changes"` // none: the mesh is as the document says
	Warnings List[string] `json:"warnings"`
}

// maxDocument bounds an ApplyRequest, in bytes: some thousand models.
const maxDocument = 8 << 20

func (u *UI) documentRoutes() []route {
	b := u.cfg.Backend
	return []route{
		{"GET", "export", session, read(b.Export)},
		{"POST", "apply", socketOnly, acceptUpTo(maxDocument, b.Apply)},
	}
}

// Export writes what admins made of the mesh as YAML.
func (c *Client) Export(ctx context.Context) (Document, error) {
	return get[Document](ctx, c, "export")
}

// Apply makes the mesh as a document says.
func (c *Client) Apply(ctx context.Context, r ApplyRequest) (ApplyResult, error) {
	return post[ApplyResult](ctx, c, "apply", r)
}
