package ui

import "context"

// OutsideAdmin shows and changes the services outside the mesh.
type OutsideAdmin interface {
	Providers(ctx context.Context) ([]Provider, error)
	// SetProvider makes a provider, or changes what the request names.
	SetProvider(ctx context.Context, r ProviderRequest) (ProviderAnswer, error)
	RemoveProvider(ctx context.Context, name string) error
	// TestProvider asks a provider for its models. One that cannot be reached is an
	// answer, not an error.
	TestProvider(ctx context.Context, r Named) (ProviderTest, error)
}

// Provider is a service outside the mesh. Its keys are shown to nobody.
type Provider struct {
	Name         string            `json:"name"`
	URL          string            `json:"url"`
	Keys         List[ProviderKey] `json:"keys"`         // in the order in which they are tried
	Models       List[string]      `json:"models"`       // PATTERN, or NAME=THEIRS
	Priority     int               `json:"priority"`     // a higher one is asked first
	UseForHeld   string            `json:"use_for_held"` // never, last, equal
	Certificate  string            `json:"certificate"`  // system, ca, unchecked, none (plain http)
	AllowPrivate bool              `json:"allow_private"`
	Parallel     int               `json:"parallel"` // requests at once from each node; 0: no bound
	Native       List[string]      `json:"native"`   // APIs that it speaks beside chat completions
	InFlight     int               `json:"in_flight"`
	Sponsor      string            `json:"sponsor"` // node that looks after it: it is a host; empty: it is none
	Direct       bool              `json:"direct"`  // the other nodes reach it themselves
	Kind         string            `json:"kind"`    // of a host: ollama, lmstudio, llama-server, vllm, openai; empty: not known
	Problem      string            `json:"problem"` // why it is not used; empty: it is
}

// ProviderKey is a key as it may be shown, and how it stands at the node that
// answers.
type ProviderKey struct {
	ID             string  `json:"id"`
	Prefix         string  `json:"prefix"`
	CoolingSeconds float64 `json:"cooling_seconds"` // it is left alone for so long; 0: it is used
	Status         int     `json:"status"`          // HTTP, of the answer that began it; 0: none
}

// ProviderRequest makes or changes a provider; what is null stays.
type ProviderRequest struct {
	Name         string        `json:"name"`
	URL          *string       `json:"url"`
	Keys         *List[string] `json:"keys"` // in place of those that are there
	Models       *List[string] `json:"models"`
	Priority     *int          `json:"priority"`
	UseForHeld   *string       `json:"use_for_held"`
	CA           *string       `json:"ca"` // PEM; empty: the system's
	Insecure     *bool         `json:"insecure"`
	AllowPrivate *bool         `json:"allow_private"`
	Parallel     *int          `json:"parallel"`
	Native       *List[string] `json:"native"`
	Sponsor      *string       `json:"sponsor"` // name or peer ID; empty: none
	Direct       *bool         `json:"direct"`
}

// ProviderAnswer is a provider as it is after a change.
type ProviderAnswer struct {
	Schema
	Provider Provider     `json:"provider"`
	Warnings List[string] `json:"warnings"`
}

// ProviderList is the answer of GET /admin/v1/providers.
type ProviderList struct {
	Schema
	Providers List[Provider] `json:"providers"`
}

// ProviderTest is what was found of a provider.
type ProviderTest struct {
	Schema
	Name        string                `json:"name"`
	URL         string                `json:"url"`     // that was asked
	Address     string                `json:"address"` // that was connected to
	ConnectMs   float64               `json:"connect_ms"`
	Certificate *ProviderCertificate  `json:"certificate"` // null: there is none, or none was seen
	Keys        List[ProviderKeyTest] `json:"keys"`
	Models      List[string]          `json:"models"`  // that it lists
	Serves      List[string]          `json:"serves"`  // of these, those that requests may ask for
	Problem     string                `json:"problem"` // empty: it answers all keys
	Hint        string                `json:"hint"`
}

// ProviderCertificate is what a provider showed.
type ProviderCertificate struct {
	Subject string `json:"subject"`
	Issuer  string `json:"issuer"`
	Expires string `json:"expires"` // RFC 3339
	SHA256  string `json:"sha256"`
	Checked bool   `json:"checked"`
}

// ProviderKeyTest is what one key got.
type ProviderKeyTest struct {
	Prefix   string  `json:"prefix"` // empty: no key was sent
	Status   int     `json:"status"`
	AnswerMs float64 `json:"answer_ms"`
	Problem  string  `json:"problem"`
}

// maxProvider bounds a request with certificates and keys.
const maxProvider = 256 << 10

func (u *UI) outsideRoutes() []route {
	b := u.cfg.Backend
	return []route{
		{"GET", "providers", session, read(listed(b.Providers, func(l List[Provider]) ProviderList { return ProviderList{Providers: l} }))},
		{"POST", "providers", socketOnly, acceptUpTo(maxProvider, b.SetProvider)},
		{"POST", "providers/test", socketOnly, accept(b.TestProvider)},
		{"DELETE", "providers/{name}", socketOnly, remove("name", b.RemoveProvider)},
	}
}

// Providers lists the services outside the mesh.
func (c *Client) Providers(ctx context.Context) (ProviderList, error) {
	return get[ProviderList](ctx, c, "providers")
}

// SetProvider makes or changes a provider.
func (c *Client) SetProvider(ctx context.Context, r ProviderRequest) (ProviderAnswer, error) {
	return post[ProviderAnswer](ctx, c, "providers", r)
}

// TestProvider asks a provider for its models.
func (c *Client) TestProvider(ctx context.Context, r Named) (ProviderTest, error) {
	return post[ProviderTest](ctx, c, "providers/test", r)
}

// RemoveProvider ends a provider.
func (c *Client) RemoveProvider(ctx context.Context, name string) error {
	return c.remove(ctx, "providers", name)
}
