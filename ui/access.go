package ui

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// AccessAdmin shows and changes whom keys count for, and what things cost.
type AccessAdmin interface {
	SetKey(ctx context.Context, r KeySettings) (KeyAnswer, error)
	Tenants(ctx context.Context) ([]Tenant, error)
	NewTenant(ctx context.Context, r TenantRequest) (TenantAnswer, error)
	SetTenant(ctx context.Context, r TenantRequest) (TenantAnswer, error)
	RemoveTenant(ctx context.Context, r Named) (Named, error)
	Projects(ctx context.Context) ([]Project, error)
	NewProject(ctx context.Context, r ProjectRequest) (ProjectAnswer, error)
	SetProject(ctx context.Context, r ProjectRequest) (ProjectAnswer, error)
	RemoveProject(ctx context.Context, r Named) (Named, error)
	Prices(ctx context.Context) ([]Price, error)
	SetPrice(ctx context.Context, r Price) (PriceAnswer, error)
	RemovePrice(ctx context.Context, r Price) (PriceAnswer, error)
	Usage(ctx context.Context, r UsageRequest) (UsageReport, error)
}

// Limit is how much of a metric may be used in a minute; of parallel at once.
type Limit struct {
	Metric string `json:"metric"` // requests, input_tokens, output_tokens, tokens, parallel
	Value  uint64 `json:"value"`
}

// Budget is an amount for a period, and what of it is spent in the one of now.
type Budget struct {
	Period string `json:"period"` // day, month (both UTC's), total
	Unit   string `json:"unit"`   // micros (micro-units of money), tokens
	Amount uint64 `json:"amount"`
	Hard   bool   `json:"hard"` // divided among the nodes: never exceeded
	Spent  uint64 `json:"spent"`
}

// Rules is what a key, project or tenant may use.
type Rules struct {
	Limits  List[Limit]  `json:"limits"`
	Budgets List[Budget] `json:"budgets"`
}

// LimitChange sets a limit; a nil value takes it away.
type LimitChange struct {
	Metric string  `json:"metric"`
	Value  *uint64 `json:"value"`
}

// BudgetChange sets a budget; a nil amount takes it away.
type BudgetChange struct {
	Period string  `json:"period"`
	Unit   string  `json:"unit"`
	Amount *uint64 `json:"amount"`
	Hard   bool    `json:"hard"`
}

// RulesChange changes what it names and leaves the rest.
type RulesChange struct {
	Limits  List[LimitChange]  `json:"limits"`
	Budgets List[BudgetChange] `json:"budgets"`
}

// KeyChange changes what it names and leaves the rest.
type KeyChange struct {
	RulesChange
	Project *string       `json:"project"` // empty: none
	Models  *List[string] `json:"models"`  // patterns; none: all
	Require *List[string] `json:"require"` // labels, key=value, of nodes that may answer
	Forbid  *List[string] `json:"forbid"`
	Origins *List[string] `json:"origins"` // of web pages that may use it, or *; none: no page
	// ExpiresSeconds is from now; 0: never.
	ExpiresSeconds *int64 `json:"expires_seconds"`
}

// KeySettings changes the key with an ID or name.
type KeySettings struct {
	Key string `json:"key"`
	KeyChange
}

// KeyAnswer is a key as it is after a change.
type KeyAnswer struct {
	Schema
	Key Key `json:"key"`
}

// Tenant is whom projects count for.
type Tenant struct {
	Name string `json:"name"`
	Rules
}

// TenantRequest makes or changes a tenant.
type TenantRequest struct {
	Name string `json:"name"`
	RulesChange
}

// TenantAnswer is a tenant as it is after a change.
type TenantAnswer struct {
	Schema
	Tenant Tenant `json:"tenant"`
}

// TenantList is the answer of GET /admin/v1/tenants.
type TenantList struct {
	Schema
	Tenants List[Tenant] `json:"tenants"`
}

// Project is whom keys count for.
type Project struct {
	Name   string       `json:"name"`
	Tenant string       `json:"tenant"` // empty: none
	Keys   List[string] `json:"keys"`   // names
	Rules
}

// ProjectRequest makes or changes a project.
type ProjectRequest struct {
	Name   string  `json:"name"`
	Tenant *string `json:"tenant"` // empty: none
	RulesChange
}

// ProjectAnswer is a project as it is after a change.
type ProjectAnswer struct {
	Schema
	Project Project `json:"project"`
}

// ProjectList is the answer of GET /admin/v1/projects.
type ProjectList struct {
	Schema
	Projects List[Project] `json:"projects"`
}

// Named is a tenant or project that ends, or ended.
type Named struct {
	Schema
	Name string `json:"name"`
}

// Price is a row of the price table. Micros are micro-units per million tokens by kind
// (input, cached_input, cache_write, output, audio_input, audio_output), and by image.
type Price struct {
	Model    string      `json:"model"`    // empty: all of the provider
	Provider string      `json:"provider"` // empty: the mesh's own, and those without a price
	Micros   List[Micro] `json:"micros"`
}

// Micro is one price.
type Micro struct {
	Kind  string `json:"kind"`
	Value uint64 `json:"value"`
}

// PriceAnswer is a price as it is after a change.
type PriceAnswer struct {
	Schema
	Price Price `json:"price"`
}

// PriceList is the answer of GET /admin/v1/prices.
type PriceList struct {
	Schema
	Prices List[Price] `json:"prices"`
}

// UsageRequest asks what was used in the last seconds; 0: since records are kept.
type UsageRequest struct {
	By           string // key, model, node, project, tenant, provider
	SinceSeconds int64
}

// UsageRow is what was used by one of them.
type UsageRow struct {
	ID           string `json:"id"` // empty: requests that count for none
	Name         string `json:"name"`
	Requests     uint64 `json:"requests"`
	Failed       uint64 `json:"failed"` // of requests: ended with an error, or left by the client
	InputTokens  uint64 `json:"input_tokens"`
	CachedTokens uint64 `json:"cached_tokens"` // of input tokens
	OutputTokens uint64 `json:"output_tokens"`
	Images       uint64 `json:"images"`
	Micros       uint64 `json:"micros"` // micro-units of money
}

// UsageReport is the answer of GET /admin/v1/usage.
type UsageReport struct {
	Schema
	By      string         `json:"by"`
	Rows    List[UsageRow] `json:"rows"`
	Missing List[string]   `json:"missing"` // nodes whose records are not in it
}

func (u *UI) accessRoutes() []route {
	b := u.cfg.Backend
	return []route{
		{"POST", "keys/settings", socketOnly, accept(b.SetKey)},
		{"GET", "tenants", session, read(listed(b.Tenants, func(l List[Tenant]) TenantList { return TenantList{Tenants: l} }))},
		{"POST", "tenants", socketOnly, accept(b.NewTenant)},
		{"POST", "tenants/settings", socketOnly, accept(b.SetTenant)},
		{"POST", "tenants/remove", socketOnly, accept(b.RemoveTenant)},
		{"GET", "projects", session, read(listed(b.Projects, func(l List[Project]) ProjectList { return ProjectList{Projects: l} }))},
		{"POST", "projects", socketOnly, accept(b.NewProject)},
		{"POST", "projects/settings", socketOnly, accept(b.SetProject)},
		{"POST", "projects/remove", socketOnly, accept(b.RemoveProject)},
		{"GET", "prices", session, read(listed(b.Prices, func(l List[Price]) PriceList { return PriceList{Prices: l} }))},
		{"POST", "prices", socketOnly, accept(b.SetPrice)},
		{"POST", "prices/remove", socketOnly, accept(b.RemovePrice)},
		{"GET", "usage", session, u.usage},
	}
}

// usage takes its request from the query: by and since, in seconds.
func (u *UI) usage(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	in := UsageRequest{By: q.Get("by")}
	if in.By == "" {
		in.By = "key"
	}
	if text := q.Get("since"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds < 0 || seconds > int64(100*365*24*time.Hour/time.Second) {
			return &Error{Kind: BadInput, Message: "since is no number of seconds"}
		}
		in.SinceSeconds = seconds
	}
	return tell(w, func() (UsageReport, error) { return u.cfg.Backend.Usage(r.Context(), in) })
}

// SetKey changes an API key.
func (c *Client) SetKey(ctx context.Context, r KeySettings) (KeyAnswer, error) {
	return post[KeyAnswer](ctx, c, "keys/settings", r)
}

// Tenants lists the tenants.
func (c *Client) Tenants(ctx context.Context) (TenantList, error) {
	return get[TenantList](ctx, c, "tenants")
}

// NewTenant makes a tenant.
func (c *Client) NewTenant(ctx context.Context, r TenantRequest) (TenantAnswer, error) {
	return post[TenantAnswer](ctx, c, "tenants", r)
}

// SetTenant changes a tenant.
func (c *Client) SetTenant(ctx context.Context, r TenantRequest) (TenantAnswer, error) {
	return post[TenantAnswer](ctx, c, "tenants/settings", r)
}

// RemoveTenant ends a tenant that has no project.
func (c *Client) RemoveTenant(ctx context.Context, r Named) (Named, error) {
	return post[Named](ctx, c, "tenants/remove", r)
}

// Projects lists the projects.
func (c *Client) Projects(ctx context.Context) (ProjectList, error) {
	return get[ProjectList](ctx, c, "projects")
}

// NewProject makes a project.
func (c *Client) NewProject(ctx context.Context, r ProjectRequest) (ProjectAnswer, error) {
	return post[ProjectAnswer](ctx, c, "projects", r)
}

// SetProject changes a project.
func (c *Client) SetProject(ctx context.Context, r ProjectRequest) (ProjectAnswer, error) {
	return post[ProjectAnswer](ctx, c, "projects/settings", r)
}

// RemoveProject ends a project that has no key.
func (c *Client) RemoveProject(ctx context.Context, r Named) (Named, error) {
	return post[Named](ctx, c, "projects/remove", r)
}

// Prices lists the price table.
func (c *Client) Prices(ctx context.Context) (PriceList, error) {
	return get[PriceList](ctx, c, "prices")
}

// SetPrice sets the prices that it names.
func (c *Client) SetPrice(ctx context.Context, r Price) (PriceAnswer, error) {
	return post[PriceAnswer](ctx, c, "prices", r)
}

// RemovePrice takes a row out of the price table.
func (c *Client) RemovePrice(ctx context.Context, r Price) (PriceAnswer, error) {
	return post[PriceAnswer](ctx, c, "prices/remove", r)
}

// Usage tells what was used.
func (c *Client) Usage(ctx context.Context, r UsageRequest) (UsageReport, error) {
	q := url.Values{"by": {r.By}}
	if r.SinceSeconds > 0 {
		q.Set("since", strconv.FormatInt(r.SinceSeconds, 10))
	}
	return get[UsageReport](ctx, c, "usage?"+q.Encode())
}
