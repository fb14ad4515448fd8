package keys

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"llmgw/mesh/catalog"
)

// Scopes of a key. Admin includes the others.
const (
	ScopeInfer   = catalog.ScopeInfer
	ScopeMetrics = catalog.ScopeMetrics
	ScopeAdmin   = catalog.ScopeAdmin
)

// Errors of this package.
var (
	// ErrMalformed is a credential that is no key of llmgw's form.
	ErrMalformed = errors.New("not an llmgw API key")
	// ErrUnknown is a key that never was, or is revoked.
	ErrUnknown = errors.New("unknown or revoked API key")
	// ErrExpired is a key whose time is over.
	ErrExpired = errors.New("API key has expired")
	// ErrNotFound says that no key has the given ID or name.
	ErrNotFound = errors.New("no such API key")
)

// NameError is a name or scope that a key cannot have.
type NameError struct{ Why string }

func (e *NameError) Error() string { return e.Why }

// AmbiguousError is a name that several keys have.
type AmbiguousError struct {
	Name string
	IDs  []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%d keys are named %q: give one of the IDs %s", len(e.IDs), e.Name, strings.Join(e.IDs, ", "))
}

// Info is what may be known of a key.
type Info struct {
	ID      string
	Name    string
	Scopes  []string
	Created time.Time
	Creator string
	First   bool

	Project string           // ID of the project that it counts for; empty: none
	Models  []string         // patterns of model names that it may use; none: all
	Nodes   catalog.Selector // labels of the nodes that may answer it
	Expires time.Time        // zero: never
	Rules   catalog.Rules    // its own limits and budgets
	Origins []string         // of web pages that may use it, or "*"; none: no page
}

// AllowsModel reports whether the key may use a model, by any of the names that
// it goes by: its ID, its aliases. Names are matched without case; '*' in a
// pattern stands for any characters.
func (i Info) AllowsModel(names ...string) bool {
	if len(i.Models) == 0 {
		return true
	}
	for _, pattern := range i.Models {
		for _, name := range names {
			if matches(catalog.FoldName(pattern), catalog.FoldName(name)) {
				return true
			}
		}
	}
	return false
}

// AllowsNode reports whether a node with these labels may answer the key.
func (i Info) AllowsNode(labels map[string]string) bool { return i.Nodes.Refuses(labels) == "" }

// AllowsOrigin reports whether a web page of an origin may use the key.
func (i Info) AllowsOrigin(origin string) bool {
	return slices.Contains(i.Origins, origin) || slices.Contains(i.Origins, "*")
}

// Expired reports whether the key's time is over at now.
func (i Info) Expired(now time.Time) bool { return !i.Expires.IsZero() && !now.Before(i.Expires) }

// Allows reports whether the key covers scope.
func (i Info) Allows(scope string) bool {
	return slices.Contains(i.Scopes, scope) || slices.Contains(i.Scopes, ScopeAdmin)
}

// documents is what the keys are kept in.
type documents interface {
	PutAPIKey(catalog.APIKey) error
	UpdateAPIKey(id string, fn func(*catalog.APIKey) error) error
	APIKeys() ([]catalog.APIKey, error)
	RevokeAPIKey(id string) error
}

// Options of Keys.
type Options struct {
	Entropy io.Reader // nil: the system's
	Now     func() time.Time
	Creator string // peer ID of this node
}

// Keys makes, checks and revokes keys. All methods may be called at once.
type Keys struct {
	docs    documents
	changes <-chan struct{}
	o       Options

	mu    sync.Mutex
	known map[string]entry // by ID; nil: to be read again

	misses rations
}

type entry struct {
	info Info
	hash []byte
}

// New reads and writes the keys of c.
func New(c *catalog.Catalog, o Options) *Keys {
	return newKeys(c, c.Watch(catalog.NamespaceKeys).C, o)
}

func newKeys(docs documents, changes <-chan struct{}, o Options) *Keys {
	if o.Entropy == nil {
		o.Entropy = rand.Reader
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Keys{docs: docs, changes: changes, o: o}
}

// Check finds the key that text is. It takes the same steps whether the ID
// exists or not, so that its time tells nothing. Errors: ErrMalformed,
// ErrUnknown, ErrExpired, or one of the store.
func (k *Keys) Check(text string) (Info, error) {
	id, secret, ok := split(text)
	if !ok {
		return Info{}, ErrMalformed
	}
	e, found, err := k.lookup(id)
	if err != nil {
		return Info{}, fmt.Errorf("check API key: %w", err)
	}
	hash := e.hash
	if !found {
		hash = make([]byte, sha256.Size)
	}
	if subtle.ConstantTimeCompare(hashSecret(secret), hash) != 1 || !found {
		return Info{}, ErrUnknown
	}
	if e.info.Expired(k.o.Now()) {
		return Info{}, ErrExpired
	}
	return e.info, nil
}

// CheckFrom is Check for a client at an address, see ClientAddress. A client that
// tries more credentials that are none than a person mistypes gets a
// *RationError until it has paused; a key in force is taken from it all the same,
// as many may share an address.
func (k *Keys) CheckFrom(text string, client netip.Addr) (Info, error) {
	info, err := k.Check(text)
	if errors.Is(err, ErrUnknown) || errors.Is(err, ErrMalformed) {
		if wait := k.misses.take(client, k.o.Now()); wait > 0 {
			return Info{}, &RationError{RetryAfter: wait}
		}
	}
	return info, err
}

// AllowsOrigin reports whether any key may be used by a web page of an origin: a
// browser asks before it tells which key it has.
func (k *Keys) AllowsOrigin(origin string) bool {
	if _, _, err := k.lookup(""); err != nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.known {
		if e.info.AllowsOrigin(origin) {
			return true
		}
	}
	return false
}

// lookup answers from the derived map, which is dropped as soon as any key
// row changed: a revoked key is refused from the next request on.
func (k *Keys) lookup(id string) (entry, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.changes:
		k.known = nil
	default:
	}
	if k.known == nil {
		known, err := k.read()
		if err != nil {
			return entry{}, false, err
		}
		k.known = known
	}
	e, ok := k.known[id]
	return e, ok, nil
}

func (k *Keys) read() (map[string]entry, error) {
	rows, err := k.docs.APIKeys()
	if err != nil {
		return nil, err
	}
	known := make(map[string]entry, len(rows))
	for _, row := range rows {
		known[row.ID] = entry{info: infoOf(row), hash: row.Hash}
	}
	return known, nil
}

func infoOf(row catalog.APIKey) Info {
	return Info{
		ID: row.ID, Name: row.Name, Scopes: row.Scopes, Created: time.Unix(row.Created, 0),
		Creator: row.Creator, First: row.First,
		Project: row.Project, Models: row.Models, Nodes: row.Nodes, Expires: unixTime(row.Expires), Rules: row.Rules,
		Origins: row.Origins,
	}
}

// unixTime takes 0 for never.
func unixTime(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// Grant is what a key may do beyond its scopes. Its fields are those of
// catalog.APIKey.
type Grant struct {
	Project string
	Models  []string
	Nodes   catalog.Selector
	Expires time.Time // zero: never
	Rules   catalog.Rules
	Origins []string
}

func (g Grant) write(row *catalog.APIKey) {
	row.Project, row.Models, row.Nodes, row.Rules = g.Project, g.Models, g.Nodes, g.Rules
	row.Expires, row.Origins = 0, g.Origins
	if !g.Expires.IsZero() {
		row.Expires = g.Expires.Unix()
	}
}

// Create makes a key and returns its text, which exists nowhere else. No
// scopes means ScopeInfer. Errors: *NameError, those of catalog.PutAPIKey.
func (k *Keys) Create(name string, scopes []string, first bool) (string, Info, error) {
	return k.CreateWith(name, scopes, first, Grant{})
}

// CreateWith is Create for a key with limits of its own.
func (k *Keys) CreateWith(name string, scopes []string, first bool, g Grant) (string, Info, error) {
	name = strings.TrimSpace(name)
	if len(scopes) == 0 {
		scopes = []string{ScopeInfer}
	}
	if err := k.validate(name, scopes); err != nil {
		return "", Info{}, err
	}
	text, id, hash, err := generate(k.o.Entropy)
	if err != nil {
		return "", Info{}, err
	}
	row := catalog.APIKey{
		ID: id, Name: name, Hash: hash, Scopes: slices.Compact(slices.Sorted(slices.Values(scopes))),
		Created: k.o.Now().Unix(), Creator: k.o.Creator, First: first,
	}
	g.write(&row)
	if err := k.docs.PutAPIKey(row); err != nil {
		return "", Info{}, fmt.Errorf("create API key: %w", err)
	}
	return text, infoOf(row), nil
}

// maxName bounds a key's name, in bytes.
const maxName = 64

func (k *Keys) validate(name string, scopes []string) error {
	switch {
	case name == "":
		return &NameError{"an API key needs a name"}
	case len(name) > maxName:
		return &NameError{fmt.Sprintf("an API key's name has at most %d bytes", maxName)}
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return &NameError{"an API key's name has printable characters only"}
	}
	for _, scope := range scopes {
		if scope != ScopeInfer && scope != ScopeMetrics && scope != ScopeAdmin {
			return &NameError{fmt.Sprintf("no scope %q: there are %s, %s and %s", scope, ScopeInfer, ScopeMetrics, ScopeAdmin)}
		}
	}
	all, err := k.List()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(i Info) bool { return i.Name == name }) {
		return &NameError{fmt.Sprintf("an API key named %q exists: revoke it first or take another name", name)}
	}
	return nil
}

// List gives the keys in force, oldest first.
func (k *Keys) List() ([]Info, error) {
	rows, err := k.docs.APIKeys()
	if err != nil {
		return nil, fmt.Errorf("list API keys: %w", err)
	}
	infos := make([]Info, len(rows))
	for i, row := range rows {
		infos[i] = infoOf(row)
	}
	return infos, nil
}

// Revoke ends the key with the given ID, or the only one with the given name,
// for good and on all nodes. Errors: ErrNotFound, *AmbiguousError, or one of
// the store.
func (k *Keys) Revoke(idOrName string) (Info, error) {
	found, err := k.Find(idOrName)
	if err != nil {
		return Info{}, err
	}
	if err := k.docs.RevokeAPIKey(found.ID); err != nil {
		return Info{}, fmt.Errorf("revoke API key %s: %w", found.ID, err)
	}
	return found, nil
}

// Update changes what the key with the given ID, or the only one with the given
// name, may do: fn gets it as it stands. Errors: ErrNotFound, *AmbiguousError,
// those of catalog.UpdateAPIKey.
func (k *Keys) Update(idOrName string, fn func(*Grant) error) (Info, error) {
	found, err := k.Find(idOrName)
	if err != nil {
		return Info{}, err
	}
	var after Info
	err = k.docs.UpdateAPIKey(found.ID, func(row *catalog.APIKey) error {
		g := Grant{row.Project, row.Models, row.Nodes, unixTime(row.Expires), row.Rules, row.Origins}
		if err := fn(&g); err != nil {
			return err
		}
		g.write(row)
		after = infoOf(*row)
		return nil
	})
	if errors.Is(err, catalog.ErrNotFound) {
		return Info{}, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return after, err
}

// Find finds the key with the given ID, or the only one with the given name, that
// is in force. Errors: ErrNotFound, *AmbiguousError, or one of the store.
func (k *Keys) Find(idOrName string) (Info, error) {
	all, err := k.List()
	if err != nil {
		return Info{}, err
	}
	found := matching(all, idOrName)
	switch len(found) {
	case 0:
		return Info{}, fmt.Errorf("find %q: %w", idOrName, ErrNotFound)
	case 1:
		return found[0], nil
	}
	ambiguous := &AmbiguousError{Name: idOrName}
	for _, i := range found {
		ambiguous.IDs = append(ambiguous.IDs, i.ID)
	}
	return Info{}, ambiguous
}

// matching prefers the ID: nobody else can choose it.
func matching(all []Info, idOrName string) []Info {
	var byName []Info
	for _, i := range all {
		if i.ID == idOrName {
			return []Info{i}
		}
		if i.Name == idOrName {
			byName = append(byName, i)
		}
	}
	return byName
}
