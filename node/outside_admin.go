package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/router/relay"
	"llmgw/ui"
)

// probeTime bounds a test of a provider.
const probeTime = 60 * time.Second

// Providers lists the services outside the mesh.
func (a admin) Providers(context.Context) ([]ui.Provider, error) {
	list, err := a.catalog.Providers()
	if err != nil {
		return nil, err
	}
	out := make([]ui.Provider, 0, len(list))
	for _, p := range list {
		out = append(out, a.shownProvider(&p))
	}
	return out, nil
}

func (a admin) shownProvider(p *catalog.Provider) ui.Provider {
	out := ui.Provider{
		Name: p.ID, URL: p.URL, Models: modelTexts(p.Models), Priority: p.Priority, UseForHeld: heldText(p.Held),
		Certificate: certificateText(p), AllowPrivate: p.Private, Parallel: p.Parallel, Direct: p.Direct, Problem: providerProblem(p),
	}
	if p.Sponsor != "" {
		v := a.view.Load()
		out.Sponsor = v.name(p.Sponsor)
		h, seen := v.host(p.ID)
		switch out.Kind = string(h.Status.Kind); {
		case out.Problem != "":
		case !seen:
			out.Problem = "its sponsor does not tell of it yet, or is not there"
		case !h.Status.Up:
			out.Problem = h.Status.Problem
		}
	}
	for _, ability := range p.Native {
		out.Native = append(out.Native, string(ability))
	}
	cooling, running := a.router.Cooling(p)
	out.InFlight = running
	for _, k := range p.Keys {
		shown := ui.ProviderKey{ID: k.ID, Prefix: k.Prefix()}
		for _, c := range cooling {
			if c.Key == k.ID {
				shown.CoolingSeconds, shown.Status = c.Left.Seconds(), c.Status
			}
		}
		out.Keys = append(out.Keys, shown)
	}
	return out
}

func providerProblem(p *catalog.Provider) string {
	if err := p.Check(); err != nil {
		return err.Error()
	}
	if len(p.Models) == 0 && p.Sponsor == "" {
		return "it has no models: llmgw providers set " + p.ID + " --models PATTERN,NAME=THEIRS"
	}
	return ""
}

// heldNever is catalog.HeldNever in words.
const heldNever = "never"

func heldText(h catalog.HeldUse) string {
	if h == catalog.HeldNever {
		return heldNever
	}
	return string(h)
}

func certificateText(p *catalog.Provider) string {
	switch {
	case strings.HasPrefix(p.URL, "http:"):
		return "none"
	case p.Insecure:
		return "unchecked"
	case p.CA != "":
		return "ca"
	}
	return "system"
}

func modelTexts(models []catalog.ProviderModel) []string {
	var out []string
	for _, m := range models {
		text := m.Pattern
		if m.Theirs != "" {
			text += "=" + m.Theirs
		}
		out = append(out, text)
	}
	return out
}

// SetProvider makes or changes a provider.
func (a admin) SetProvider(ctx context.Context, r ui.ProviderRequest) (ui.ProviderAnswer, error) {
	var after catalog.Provider
	if r.Sponsor != nil && *r.Sponsor != "" {
		n, ok := a.view.Load().node(*r.Sponsor)
		if !ok {
			return ui.ProviderAnswer{}, &ui.Error{Kind: ui.NotFound, Message: fmt.Sprintf("there is no node %q", *r.Sponsor), Hint: "llmgw nodes lists them"}
		}
		r.Sponsor = &n.ID
		if err := a.mayChoose(n, r.Name); err != nil {
			return ui.ProviderAnswer{}, err
		}
	}
	err := a.catalog.SetProvider(r.Name, func(p *catalog.Provider) error {
		changeProvider(p, r)
		after = *p
		return nil
	})
	if err != nil {
		return ui.ProviderAnswer{}, explainProvider(err, r.Name)
	}
	if err := a.offer(ctx); err != nil {
		return ui.ProviderAnswer{}, err
	}
	return ui.ProviderAnswer{Provider: a.shownProvider(&after), Warnings: a.providerWarnings(&after)}, nil
}

// mayChoose says why a node cannot look after one more host.
func (a admin) mayChoose(n mesh.Node, name string) error {
	all, err := a.catalog.Providers()
	if err != nil {
		return err
	}
	others := 0
	for _, p := range all {
		if p.Sponsor == n.ID && catalog.FoldName(p.ID) != catalog.FoldName(name) {
			others++
		}
	}
	if others >= maxHosts {
		return &ui.Error{Kind: ui.Conflict, Code: "too_many_hosts", Message: fmt.Sprintf("%s looks after %d hosts, as many as it may", n.Name, others), Hint: "choose another node as its sponsor"}
	}
	return nil
}

func changeProvider(p *catalog.Provider, r ui.ProviderRequest) {
	change(&p.URL, r.URL)
	change(&p.Private, r.AllowPrivate)
	change(&p.Priority, r.Priority)
	change(&p.Parallel, r.Parallel)
	change(&p.Sponsor, r.Sponsor)
	change(&p.Direct, r.Direct)
	if r.Keys != nil {
		p.Keys = catalog.KeysOf(*r.Keys)
	}
	if r.CA != nil {
		p.CA, p.Insecure = *r.CA, p.Insecure && *r.CA == ""
	}
	if r.Insecure != nil {
		p.Insecure = *r.Insecure
		if p.Insecure && r.CA == nil {
			p.CA = ""
		}
	}
	if r.UseForHeld != nil {
		p.Held = catalog.HeldUse(*r.UseForHeld)
		if *r.UseForHeld == heldNever {
			p.Held = catalog.HeldNever
		}
	}
	if r.Models != nil {
		p.Models = nil
		for _, text := range *r.Models {
			pattern, theirs, _ := strings.Cut(text, "=")
			p.Models = append(p.Models, catalog.ProviderModel{Pattern: pattern, Theirs: theirs})
		}
	}
	if r.Native != nil {
		p.Native = nil
		for _, text := range *r.Native {
			p.Native = append(p.Native, catalog.Ability(text))
		}
	}
}

func change[T any](have, want *T) {
	if want != nil {
		*have = *want
	}
}

// providerWarnings says what an admin should know of a provider as it is.
func (a admin) providerWarnings(p *catalog.Provider) []string {
	var out []string
	if problem := providerProblem(p); problem != "" {
		out = append(out, problem)
	}
	if p.Insecure {
		out = append(out, "its certificate is not checked: whoever is between can read keys and prompts")
	}
	if strings.HasPrefix(p.URL, "http:") {
		out = append(out, "it is plain http: keys and prompts cross the network in clear")
	}
	if held := a.view.Load().heldBy(p); len(held) > 0 && p.Held != catalog.HeldNever {
		out = append(out, fmt.Sprintf("prompts for %s, which this mesh holds, may go there", strings.Join(held[:min(len(held), 5)], ", ")))
	}
	if slices.ContainsFunc(p.Models, func(m catalog.ProviderModel) bool { return strings.Trim(m.Pattern, "*") == "" }) {
		out = append(out, "each name that no model of this mesh has goes there, mistyped ones too")
	}
	return out
}

// hostReplicas are the models of the hosts that a node sponsors, as replicas.
func (a admin) hostReplicas(v *view, n mesh.Node) []ui.Replica {
	var out []ui.Replica
	for _, h := range v.hosts {
		if h.Peer != n.ID {
			continue
		}
		s := h.Status
		r := ui.Replica{
			Node: n.ID, NodeName: v.name(n.ID), State: string(catalog.ReplicaReady), Engine: string(s.Kind), Device: "host " + h.Provider.ID,
			Slots: known(s.Slots), Reason: s.Problem,
		}
		if s.LoadKnown {
			r.InFlight = &s.InFlight
		}
		if seconds := a.now().Unix() - s.Since; s.Since > 0 && seconds >= 0 {
			r.StateSeconds = &seconds
		}
		if !s.Up {
			r.State, r.Model = string(catalog.ReplicaFailed), "-"
			out = append(out, r)
			continue
		}
		for _, name := range h.Provider.HostNames(s) {
			m, _ := h.Provider.HostMatch(s, name)
			one := r
			if one.Model, one.Context = name, known(m.Context); m.Cold {
				one.Reason = "the host loads it when it is asked for"
			}
			out = append(out, one)
		}
	}
	return out
}

func explainProvider(err error, name string) error {
	var bad *catalog.ProviderError
	var group *catalog.GroupError
	switch {
	case errors.Is(err, catalog.ErrNotFound):
		return &ui.Error{Kind: ui.NotFound, Message: fmt.Sprintf("there is no provider %q", name), Hint: "llmgw providers ls lists them", Err: err}
	case errors.As(err, &bad), errors.As(err, &group):
		return &ui.Error{Kind: ui.BadInput, Code: "bad_provider", Message: err.Error(), Hint: "llmgw providers set --help"}
	}
	return err
}

// RemoveProvider ends a provider.
func (a admin) RemoveProvider(ctx context.Context, name string) error {
	if err := a.catalog.RemoveProvider(name); err != nil {
		return explainProvider(err, name)
	}
	return a.offer(ctx)
}

// TestProvider asks a provider for its models with each of its keys.
func (a admin) TestProvider(ctx context.Context, r ui.Named) (ui.ProviderTest, error) {
	p, err := a.catalog.Provider(r.Name)
	if err != nil {
		return ui.ProviderTest{}, explainProvider(err, r.Name)
	}
	out := ui.ProviderTest{Name: p.ID, URL: p.Base() + "/models"}
	if err := p.Check(); err != nil {
		out.Problem = err.Error()
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	found, err := a.router.ProbeProvider(ctx, &p)
	out.Address, out.ConnectMs, out.Certificate = found.Address, milliseconds(found.Connect), shownCertificate(found.Certificate)
	if err != nil {
		out.Problem, out.Hint = explainProbe(err)
		return out, nil
	}
	for i, k := range found.Keys {
		t := ui.ProviderKeyTest{Status: k.Status, AnswerMs: milliseconds(k.Answer)}
		if i < len(p.Keys) {
			t.Prefix = p.Keys[i].Prefix()
		}
		if k.Err != nil {
			t.Problem = k.Err.Error()
			out.Problem = cmp.Or(out.Problem, t.Problem)
		}
		out.Keys = append(out.Keys, t)
		if len(out.Models) == 0 {
			out.Models = k.Models
		}
	}
	out.Serves = served(&p, out.Models)
	return out, nil
}

// served are the models of a provider that a request can ask for by a name.
func served(p *catalog.Provider, models []string) []string {
	var out []string
	for _, m := range models {
		theirs, _, ok := p.Match(m)
		renamed := slices.ContainsFunc(p.Models, func(own catalog.ProviderModel) bool { return own.Theirs == m })
		if ok && theirs == m || renamed {
			out = append(out, m)
		}
	}
	return out
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func shownCertificate(c *relay.Certificate) *ui.ProviderCertificate {
	if c == nil {
		return nil
	}
	return &ui.ProviderCertificate{
		Subject: c.Subject, Issuer: c.Issuer, Expires: c.Expires.UTC().Format(time.RFC3339), SHA256: c.SHA256, Checked: c.Checked,
	}
}

func explainProbe(err error) (problem, hint string) {
	var address *relay.AddressError
	switch {
	case errors.As(err, &address):
		return address.Error(), ""
	case relay.IsCertificate(err):
		return err.Error(), "--ca-file FILE trusts the authority in FILE for it; --insecure checks nothing"
	case relay.IsTimeout(err):
		return "it does not answer in time: " + err.Error(), ""
	}
	return err.Error(), ""
}
