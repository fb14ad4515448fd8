package node

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"llmgw/mesh/catalog"
)

const (
	// offerStale is how old a provider's own list may be when somebody lists models;
	// nobody asks, and no provider is bothered.
	offerStale = 10 * time.Minute
	// offerAgain is when one that did not answer is asked again.
	offerAgain = time.Minute
	offerTime  = 10 * time.Second
	// maxOffered bounds the names that one provider adds to the list of models.
	maxOffered = 1000
)

// offered is which models providers say they have, as far as a pattern of names stands
// for them: the pattern itself is no name that a client could ask for.
type offered struct {
	mu     sync.Mutex
	offers map[string]*offer // by provider ID
	listed chan struct{}     // somebody lists models
}

type offer struct {
	of     catalog.Provider // as it was asked
	models []string
	asked  time.Time
	failed bool
}

func newOffered() *offered {
	return &offered{offers: map[string]*offer{}, listed: make(chan struct{}, 1)}
}

// openPatterns are those of a provider that stand for several models of its own.
func openPatterns(p *catalog.Provider) []string {
	var out []string
	for _, m := range p.Models {
		if strings.Contains(m.Pattern, "*") && m.Theirs == "" {
			out = append(out, m.Pattern)
		}
	}
	return out
}

// names are what providers have for their patterns. That somebody asks keeps them fresh.
func (o *offered) names(providers []*catalog.Provider) []string {
	select {
	case o.listed <- struct{}{}:
	default:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []string
	for _, p := range providers {
		patterns, known := openPatterns(p), o.offers[p.ID]
		if len(patterns) == 0 || known == nil {
			continue
		}
		for _, name := range known.models {
			fits := func(pattern string) bool {
				return catalog.MatchPattern(catalog.FoldName(pattern), catalog.FoldName(name))
			}
			if catalog.CheckName(name) == nil && slices.ContainsFunc(patterns, fits) {
				out = append(out, name)
			}
		}
	}
	return out
}

// due says which providers are to be asked now, and forgets those that are gone or are
// not what they were.
func (o *offered) due(providers []*catalog.Provider, listed bool, now time.Time) []*catalog.Provider {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.offers
	o.offers = map[string]*offer{}
	var out []*catalog.Provider
	for _, p := range providers {
		if len(openPatterns(p)) == 0 {
			continue
		}
		known := before[p.ID]
		if known == nil || !sameAccount(&known.of, p) {
			known = &offer{of: *p}
		}
		o.offers[p.ID] = known
		wait := offerStale
		if known.failed {
			wait = offerAgain
		}
		if known.asked.IsZero() || listed && now.Sub(known.asked) >= wait {
			known.asked = now
			out = append(out, p)
		}
	}
	return out
}

// sameAccount says that a provider would answer both the same way.
func sameAccount(a, b *catalog.Provider) bool {
	return a.URL == b.URL && a.Private == b.Private && a.CA == b.CA && a.Insecure == b.Insecure &&
		slices.EqualFunc(a.Keys, b.Keys, func(x, y catalog.ProviderKey) bool { return x.ID == y.ID })
}

// end takes in what a provider answered. What it said before holds while it is away.
func (o *offered) end(p *catalog.Provider, models []string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.offers[p.ID]
	if known == nil || !sameAccount(&known.of, p) {
		return
	}
	if known.failed = err != nil; err == nil {
		known.models = models[:min(len(models), maxOffered)]
	}
}

// askOffers keeps the lists of providers, until ctx ends.
func (n *Node) askOffers(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	docs := n.catalog.Watch(catalog.NamespaceProviders)
	defer docs.Close()
	listed := false
	for {
		providers, err := n.readProviders()
		if err != nil {
			n.log.Error("providers cannot be read", "error", err)
		}
		providers = slices.DeleteFunc(providers, func(p *catalog.Provider) bool { return p.Sponsor != "" })
		for _, p := range n.offered.due(providers, listed, n.now()) {
			asking.Go(func() { n.askOffer(ctx, p) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-docs.C:
			listed = false
		case <-n.offered.listed:
			listed = true
		}
	}
}

func (n *Node) askOffer(ctx context.Context, p *catalog.Provider) {
	ctx, cancel := context.WithTimeout(ctx, offerTime)
	defer cancel()
	models, err := n.router.OutsideModels(ctx, p)
	if err != nil {
		n.log.Debug("a provider does not tell its models", "provider", p.ID, "error", err)
	}
	n.offered.end(p, models, err)
}
