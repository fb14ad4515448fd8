package catalog

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// NamespaceProviders holds the services outside the mesh.
const NamespaceProviders = "providers"

// Cells of a provider's row; each key has one of its own. The URL and what may
// be done with it are one cell each, so that no merge gives a permission to an
// address that it was not given for.
const (
	cellProviderTarget   = "target"
	cellProviderTrust    = "trust"
	cellProviderModels   = "models"
	cellProviderPriority = "priority"
	cellProviderHeld     = "held"
	cellProviderParallel = "parallel"
	cellProviderNative   = "native"
	cellProviderHost     = "host"
	providerKeyPrefix    = "key/"
)

// Bounds of a provider's document.
const (
	MaxProviderKeys     = 16
	maxProviderKey      = 1024 // bytes of one
	maxProviderURL      = 1024
	maxProviderModels   = 256
	maxProviderCA       = 32 << 10
	MaxProviderPriority = 1000
	maxProviderParallel = 100_000
)

// Secret is text that is shown to nobody. Each way of printing it gives stars, as does
// each encoding that asks how (JSON, YAML, XML).
type Secret string

// Format hides the text from fmt, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("***")) }

// String hides the text.
func (s Secret) String() string { return "***" }

// MarshalJSON hides the text.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"***"`), nil }

// MarshalText hides the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte("***"), nil }

// LogValue hides the text.
func (s Secret) LogValue() slog.Value { return slog.StringValue("***") }

// Reveal gives the text, for the one place that needs it.
func (s Secret) Reveal() string { return string(s) }

// ProviderKey is a credential at a provider.
type ProviderKey struct {
	ID     string // of the secret's hash; tells keys apart
	Secret Secret
}

// Prefix is the start of the secret that may be shown: at most a quarter of it.
func (k ProviderKey) Prefix() string {
	const most = 7
	text := k.Secret.Reveal()
	return text[:min(most, len(text)/4)] + "…"
}

// providerKeyCell is a key as it is stored: bound to the origin that it was given
// for, as a URL may be changed at another place at the same time.
type providerKeyCell struct {
	Secret string `cbor:"1,keyasint"`
	Origin string `cbor:"2,keyasint"`
	Place  int    `cbor:"3,keyasint,omitempty"`
}

// ProviderModel says which models a provider answers for: all names like a
// pattern in which '*' stands for anything, or one name, which it knows as Theirs.
type ProviderModel struct {
	Pattern string `json:"pattern"`
	Theirs  string `json:"theirs,omitempty"` // empty: as asked
}

// HeldUse says whether a provider is used for models that the mesh holds.
type HeldUse string

// Uses for models that the mesh holds.
const (
	HeldNever HeldUse = ""      // not
	HeldLast  HeldUse = "last"  // when no replica of the mesh has room
	HeldEqual HeldUse = "equal" // as a replica among others
)

// Provider is a service outside the mesh that speaks the OpenAI API.
type Provider struct {
	ID       string          `json:"id"` // its name, folded
	URL      string          `json:"url"`
	Private  bool            `json:"allow_private"` // its address may be private
	CA       string          `json:"ca,omitempty"`  // PEM of what signs its certificate; empty: the system's
	Insecure bool            `json:"insecure"`      // its certificate is not checked
	Keys     []ProviderKey   `json:"-"`
	Models   []ProviderModel `json:"models"`
	Priority int             `json:"priority"` // a higher one is asked first
	Held     HeldUse         `json:"use_for_held"`
	Parallel int             `json:"parallel"` // requests at once from each node; 0: no bound
	// Native are the APIs that it speaks beside chat completions; requests in
	// others are translated.
	Native []Ability `json:"native,omitempty"`
	// Sponsor is the peer ID of the node that looks after it, which makes it a
	// host: an engine on a machine that cannot be a node. Direct: the other nodes
	// reach it themselves, not through the sponsor.
	Sponsor string `json:"sponsor,omitempty"`
	Direct  bool   `json:"direct,omitempty"`
}

type providerHost struct {
	Sponsor string `cbor:"1,keyasint"`
	Direct  bool   `cbor:"2,keyasint,omitempty"`
}

// NativeAbilities are those that Native may name.
func NativeAbilities() []Ability {
	return []Ability{AbilityResponses, AbilityMessages, AbilityTokenize}
}

type providerTarget struct {
	URL     string `cbor:"1,keyasint"`
	Private bool   `cbor:"2,keyasint,omitempty"`
}

type providerTrust struct {
	CA       string `cbor:"1,keyasint,omitempty"`
	Insecure bool   `cbor:"2,keyasint,omitempty"`
}

// ProviderError says which setting of a provider cannot be as it is. It never
// holds a key.
type ProviderError struct{ Name, Field, Why string }

func (e *ProviderError) Error() string {
	return fmt.Sprintf("provider %q: %s %s", e.Name, e.Field, e.Why)
}

// Base is the URL of the API without a slash at its end: a URL without a path
// means /v1 below it.
func (p *Provider) Base() string {
	base := strings.TrimRight(p.URL, "/")
	if u, err := url.Parse(base); err == nil && u.Path == "" {
		base += "/v1"
	}
	return base
}

// Match finds the name that a provider knows a model by, and the pattern that
// says so; the first that fits counts.
func (p *Provider) Match(name string) (theirs, pattern string, ok bool) {
	if CheckName(name) != nil {
		return "", "", false
	}
	folded := FoldName(name)
	for _, m := range p.Models {
		if !MatchPattern(FoldName(m.Pattern), folded) {
			continue
		}
		if theirs = m.Theirs; theirs == "" {
			theirs = name
		}
		return theirs, m.Pattern, true
	}
	return "", "", false
}

// MatchPattern says whether name is as pattern says, in which '*' stands for any
// characters.
func MatchPattern(pattern, name string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, first)
	if !ok {
		return false
	}
	for {
		part, more, wild := strings.Cut(rest, "*")
		if !wild {
			return strings.HasSuffix(name, rest)
		}
		if _, name, ok = strings.Cut(name, part); !ok {
			return false
		}
		rest = more
	}
}

// Origin is scheme, host and port of a URL in their canonical form; empty for
// one that is none.
func Origin(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	port := cmp.Or(u.Port(), defaultPort(u.Scheme))
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// defaultPort is the one that a URL of this scheme need not name.
func defaultPort(scheme string) string {
	return map[string]string{"https": "443", "http": "80"}[scheme]
}

// isPort says whether text is the number of a port in its shortest form.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == text
}

// KeysOf makes keys of secrets.
func KeysOf(secrets []string) []ProviderKey {
	out := make([]ProviderKey, 0, len(secrets))
	for _, s := range secrets {
		sum := sha256.Sum256([]byte(s))
		out = append(out, ProviderKey{ID: hex.EncodeToString(sum[:6]), Secret: Secret(s)})
	}
	return out
}

// Check says why a provider cannot be as it is: a *ProviderError, or nil.
func (p *Provider) Check() error {
	fail := func(field, format string, args ...any) error {
		return &ProviderError{p.ID, field, fmt.Sprintf(format, args...)}
	}
	if err := p.checkURL(fail); err != nil {
		return err
	}
	if err := p.checkTrust(fail); err != nil {
		return err
	}
	if err := p.checkKeys(fail); err != nil {
		return err
	}
	switch {
	case p.Priority < -MaxProviderPriority || p.Priority > MaxProviderPriority:
		return fail("priority", "is %d: want %d to %d", p.Priority, -MaxProviderPriority, MaxProviderPriority)
	case p.Held != HeldNever && p.Held != HeldLast && p.Held != HeldEqual:
		return fail("use for held models", "is %q: want never, %s or %s", p.Held, HeldLast, HeldEqual)
	case p.Direct && p.Sponsor == "":
		return fail("direct", "is for a host with a sponsor")
	case p.Parallel < 0 || p.Parallel > maxProviderParallel:
		return fail("parallel", "is %d: want 0 to %d", p.Parallel, maxProviderParallel)
	}
	for _, a := range p.Native {
		if !slices.Contains(NativeAbilities(), a) {
			return fail("native", "names %q: there are %s", a, joined(NativeAbilities()))
		}
	}
	if err := p.checkModels(fail); err != nil {
		return err
	}
	if cell, why := checkCells(p.cells()); why != "" {
		return fail(cell, "%s", why)
	}
	return nil
}

func (p *Provider) checkURL(fail func(string, string, ...any) error) error {
	u, err := url.Parse(p.URL)
	switch {
	case p.URL == "":
		return fail("URL", "is missing")
	case err != nil || len(p.URL) > maxProviderURL || u.Hostname() == "" || u.Opaque != "":
		return fail("URL", "is none of the form https://host/v1")
	case u.User != nil:
		return fail("URL", "holds a name or password: give keys by --key-file")
	case strings.ContainsAny(p.URL, "?#"): // also empty ones, behind which the path would go
		return fail("URL", "has a query or fragment")
	case u.Scheme != "https" && u.Scheme != "http":
		return fail("URL", "has the scheme %q: want https", u.Scheme)
	case u.Scheme == "http" && !p.Private:
		return fail("URL", "is plain http, which shows keys and prompts to the network: want https, or --allow-private for a service on your own")
	case strings.ContainsFunc(p.URL, func(c rune) bool { return c <= ' ' || c > '~' }):
		return fail("URL", "has characters that a URL cannot have")
	}
	if port := u.Port(); port != "" && !isPort(port) {
		return fail("URL", "has the port %q", port)
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		if why := RefuseAddress(addr, p.Private); why != "" {
			return fail("URL", "%s", why)
		}
	}
	return nil
}

func (p *Provider) checkTrust(fail func(string, string, ...any) error) error {
	switch {
	case p.CA != "" && p.Insecure:
		return fail("certificate", "cannot be both checked by a CA and unchecked")
	case len(p.CA) > maxProviderCA:
		return fail("CA", "is over %d bytes", maxProviderCA)
	case p.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(p.CA)):
		return fail("CA", "holds no certificate in PEM")
	}
	return nil
}

func (p *Provider) checkKeys(fail func(string, string, ...any) error) error {
	if len(p.Keys) > MaxProviderKeys {
		return fail("keys", "are more than %d", MaxProviderKeys)
	}
	for i, k := range p.Keys {
		text := k.Secret.Reveal()
		switch {
		case text == "" || len(text) > maxProviderKey || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }):
			return fail("keys", "hold one (number %d) that is empty, over %d bytes or not printable", i+1, maxProviderKey)
		case slices.ContainsFunc(p.Keys[:i], func(o ProviderKey) bool { return o.ID == k.ID }):
			return fail("keys", "hold one twice (number %d)", i+1)
		}
	}
	return nil
}

func (p *Provider) checkModels(fail func(string, string, ...any) error) error {
	if len(p.Models) > maxProviderModels {
		return fail("models", "are more than %d", maxProviderModels)
	}
	for _, m := range p.Models {
		wild := strings.Contains(m.Pattern, "*")
		switch {
		case strings.Trim(m.Pattern, "*") != "" && CheckName(strings.ReplaceAll(m.Pattern, "*", "x")) != nil, m.Pattern == "":
			return fail("models", "cannot have %q: want a model name in which '*' stands for anything", m.Pattern)
		case wild && m.Theirs != "":
			return fail("models", "cannot have %q: a pattern has no other name", m.Pattern+"="+m.Theirs)
		case len(m.Theirs) > maxNameBytes || strings.ContainsFunc(m.Theirs, func(c rune) bool { return c <= ' ' || c == 0x7f }):
			return fail("models", "cannot have the provider's name %q", m.Theirs)
		}
	}
	return nil
}

// Providers lists the providers, those that are asked first at the start, without those
// that cannot be read.
func (c *Catalog) Providers() ([]Provider, error) {
	out, err := listRows(c, NamespaceProviders, byID("provider", providerFromRow))
	slices.SortFunc(out, func(a, b Provider) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), strings.Compare(a.ID, b.ID))
	})
	return out, err
}

// Provider reads one provider by name; ErrNotFound, *UnreadableError.
func (c *Catalog) Provider(name string) (Provider, error) {
	id, err := foldGroup("provider", name)
	if err != nil {
		return Provider{}, errors.Join(ErrNotFound, err)
	}
	row, ok, err := c.store.Get(crdt.NewKey(NamespaceProviders, id))
	if err != nil {
		return Provider{}, fmt.Errorf("read provider %q: %w", id, err)
	}
	if !ok {
		return Provider{}, fmt.Errorf("provider %q: %w", id, ErrNotFound)
	}
	return providerFromRow(id, row)
}

// SetProvider makes a provider or changes one: fn gets it as it stands, with
// only its ID where there is none yet. Keys are for one origin: with another URL
// they have to be given again. Errors: *ProviderError, *GroupError, fn's.
func (c *Catalog) SetProvider(name string, fn func(*Provider) error) error {
	id, err := foldGroup("provider", name)
	if err != nil {
		return err
	}
	key := crdt.NewKey(NamespaceProviders, id)
	_, err = c.store.Update(func(tx *store.Tx) error {
		row, ok, err := tx.Get(key)
		if err != nil {
			return err
		}
		if !ok {
			row = crdt.Row{}
		}
		p, err := providerFromRow(id, row)
		if err != nil {
			return err
		}
		have, before := p.cells(), p
		before.Keys = slices.Clone(p.Keys)
		if err := fn(&p); err != nil {
			return err
		}
		if err := p.Check(); err != nil {
			return err
		}
		if ok && Origin(p.URL) != Origin(before.URL) && sharesKey(p.Keys, before.Keys) {
			return &ProviderError{id, "keys", "are for " + Origin(before.URL) + ": give those for the new URL with it"}
		}
		for cell := range row.Cells { // keys of another origin, too
			if strings.HasPrefix(cell, providerKeyPrefix) && have[cell] == nil && len(row.Cells[cell].Value) > 0 {
				have[cell] = true
			}
		}
		return writeSet(tx, key, have, p.cells())
	})
	if err != nil {
		return fmt.Errorf("set provider: %w", err)
	}
	return nil
}

func sharesKey(a, b []ProviderKey) bool {
	return slices.ContainsFunc(a, func(k ProviderKey) bool {
		return slices.ContainsFunc(b, func(o ProviderKey) bool { return o.ID == k.ID })
	})
}

// RemoveProvider ends a provider by name; ErrNotFound if there is none.
func (c *Catalog) RemoveProvider(name string) error {
	id, err := foldGroup("provider", name)
	if err != nil {
		return errors.Join(ErrNotFound, err)
	}
	return c.deleteRecord(NamespaceProviders, id)
}

func (p *Provider) cells() map[string]any {
	cells := map[string]any{}
	if p.URL != "" || p.Private {
		cells[cellProviderTarget] = providerTarget{p.URL, p.Private}
	}
	if p.CA != "" || p.Insecure {
		cells[cellProviderTrust] = providerTrust{p.CA, p.Insecure}
	}
	if len(p.Models) > 0 {
		cells[cellProviderModels] = slices.Clone(p.Models)
	}
	if p.Priority != 0 {
		cells[cellProviderPriority] = p.Priority
	}
	if p.Held != HeldNever {
		cells[cellProviderHeld] = string(p.Held)
	}
	if p.Parallel != 0 {
		cells[cellProviderParallel] = p.Parallel
	}
	if len(p.Native) > 0 {
		cells[cellProviderNative] = slices.Clone(p.Native)
	}
	if p.Sponsor != "" || p.Direct {
		cells[cellProviderHost] = providerHost{p.Sponsor, p.Direct}
	}
	for i, k := range p.Keys {
		cells[providerKeyPrefix+k.ID] = providerKeyCell{k.Secret.Reveal(), Origin(p.URL), i}
	}
	return cells
}

func providerFromRow(id string, row crdt.Row) (Provider, error) {
	p := Provider{ID: id}
	var target providerTarget
	var trust providerTrust
	var host providerHost
	err := errors.Join(decode(row, cellProviderTarget, &target), decode(row, cellProviderTrust, &trust), decode(row, cellProviderHost, &host),
		decode(row, cellProviderModels, &p.Models), decode(row, cellProviderPriority, &p.Priority),
		decode(row, cellProviderHeld, &p.Held), decode(row, cellProviderParallel, &p.Parallel), decode(row, cellProviderNative, &p.Native))
	p.URL, p.Private, p.CA, p.Insecure = target.URL, target.Private, trust.CA, trust.Insecure
	p.Sponsor, p.Direct = host.Sponsor, host.Direct
	places := map[string]int{}
	for cell, value := range row.Cells {
		keyID, ok := strings.CutPrefix(cell, providerKeyPrefix)
		if !ok || len(value.Value) == 0 {
			continue
		}
		var k providerKeyCell
		if e := decode(row, cell, &k); e != nil {
			err = errors.Join(err, e)
			continue
		}
		if k.Origin == Origin(p.URL) {
			p.Keys, places[keyID] = append(p.Keys, ProviderKey{keyID, Secret(k.Secret)}), k.Place
		}
	}
	slices.SortFunc(p.Keys, func(a, b ProviderKey) int {
		return cmp.Or(cmp.Compare(places[a.ID], places[b.ID]), strings.Compare(a.ID, b.ID))
	})
	return p, unreadable(crdt.NewKey(NamespaceProviders, id), row, err)
}
