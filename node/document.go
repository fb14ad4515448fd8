package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/mesh/placement"

	"go.yaml.in/yaml/v3"
)

// document is what `llmgw export` writes and `llmgw apply` reads. What it does
// not name is left as it is.
type document struct {
	Version  int                  `yaml:"version"`
	Settings map[string]plainText `yaml:"settings,omitempty"` // by key
	Tenants  map[string]groupDoc  `yaml:"tenants,omitempty"`  // by name
	Projects map[string]groupDoc  `yaml:"projects,omitempty"` // by name
	Models   map[string]modelDoc  `yaml:"models,omitempty"`   // by name
	Prices   []priceDoc           `yaml:"prices,omitempty"`
	Routes   map[string]routeDoc  `yaml:"routes,omitempty"` // by name
	Nodes    map[string]nodeDoc   `yaml:"nodes,omitempty"`  // by name or peer ID
}

// modelDoc is a model as a person writes it, here and in a config file.
type modelDoc struct {
	Source   *sourceDoc             `yaml:"source,omitempty"`
	Aliases  *[]string              `yaml:"aliases,omitempty"`
	State    *string                `yaml:"state,omitempty"`
	Scale    *scaleDoc              `yaml:"scale,omitempty"`
	Pin      *string                `yaml:"pin,omitempty"` // name or peer ID of a node; empty: none
	Limits   *limitsDoc             `yaml:"limits,omitempty"`
	Require  *map[string]string     `yaml:"require,omitempty"`
	Forbid   *map[string]string     `yaml:"forbid,omitempty"`
	Profiles *map[string]profileDoc `yaml:"profiles,omitempty"` // by ID
}

// sourceDoc is a source: its URI alone, or all that the catalog keeps of it.
type sourceDoc struct {
	URI             string `yaml:"uri"`
	Revision        string `yaml:"revision,omitempty"`
	Digest          string `yaml:"digest,omitempty"`
	SizeBytes       int64  `yaml:"size_bytes,omitempty"`
	Format          string `yaml:"format,omitempty"`
	Architecture    string `yaml:"architecture,omitempty"`
	ContextTrain    int    `yaml:"context_train,omitempty"`
	KVBytesPerToken int64  `yaml:"kv_bytes_per_token,omitempty"`
}

// UnmarshalYAML takes a plain URI too.
func (s *sourceDoc) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		s.URI = n.Value
		return nil
	}
	type fields sourceDoc
	var known map[string]any
	raw, err := yaml.Marshal(fields{Revision: "-", Digest: "-", SizeBytes: 1, Format: "-", Architecture: "-", ContextTrain: 1, KVBytesPerToken: 1})
	if err := errors.Join(err, yaml.Unmarshal(raw, &known)); err != nil {
		return err
	}
	for i := 0; i+1 < len(n.Content); i += 2 { // a decoder of a part does not do this
		if _, ok := known[n.Content[i].Value]; !ok {
			return fmt.Errorf("line %d: field %s not found in source", n.Content[i].Line, n.Content[i].Value)
		}
	}
	return n.Decode((*fields)(s))
}

type scaleDoc struct {
	Min  *int      `yaml:"min,omitempty"`
	Max  *int      `yaml:"max,omitempty"`
	Idle *duration `yaml:"idle,omitempty"`
}

type limitsDoc struct {
	Context       *int  `yaml:"context,omitempty"`
	MaxOutput     *int  `yaml:"max_output,omitempty"`
	EndRepetition *bool `yaml:"end_repetition,omitempty"`
}

type profileDoc struct {
	Engine     *string   `yaml:"engine,omitempty"` // default: the one that reads the format
	Args       *[]string `yaml:"args,omitempty"`
	Context    *int      `yaml:"context,omitempty"`
	Parallel   *int      `yaml:"parallel,omitempty"`
	Embeddings *bool     `yaml:"embeddings,omitempty"`
	Priority   *int      `yaml:"priority,omitempty"`
	Weight     *float64  `yaml:"weight,omitempty"`
}

type nodeDoc struct {
	Labels          *map[string]string `yaml:"labels,omitempty"`
	Location        *string            `yaml:"location,omitempty"`
	Cordoned        *bool              `yaml:"cordoned,omitempty"`
	Draining        *bool              `yaml:"draining,omitempty"`
	CordonedDevices *[]string          `yaml:"cordoned_devices,omitempty"` // IDs
}

// duration is a time such as 5m.
type duration time.Duration

func (d duration) MarshalYAML() (any, error) { return time.Duration(d).String(), nil }

// UnmarshalYAML reads what MarshalYAML wrote.
func (d *duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %q is no time; write it as 90s, 5m or 1h", n.Line, n.Value)
	}
	*d = duration(v)
	return nil
}

// plainText is a scalar or a list of scalars, as a setting's text.
type plainText string

// UnmarshalYAML joins a list by commas.
func (p *plainText) UnmarshalYAML(n *yaml.Node) error {
	switch n.Kind {
	case yaml.ScalarNode:
		*p = plainText(n.Value)
	case yaml.SequenceNode:
		var parts []string
		if err := n.Decode(&parts); err != nil {
			return err
		}
		*p = plainText(strings.Join(parts, ","))
	default:
		return fmt.Errorf("line %d: a setting is one value or a list", n.Line)
	}
	return nil
}

// documentVersion is the only version that this build reads and writes.
const documentVersion = 1

// parseDocument reads one document. An unknown field is an error with its line.
func parseDocument(text string) (document, error) {
	var d document
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	err := dec.Decode(&d)
	switch {
	case errors.Is(err, io.EOF):
		return document{}, errors.New("the document is empty")
	case err != nil:
		return document{}, err
	case d.Version != documentVersion:
		return document{}, fmt.Errorf("it must say `version: %d` (it says %d)", documentVersion, d.Version)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return document{}, errors.New("more follows after the first document")
	}
	return d, errors.Join(oneEach("models", d.Models), oneEach("routes", d.Routes), oneEach("tenants", d.Tenants), oneEach("projects", d.Projects))
}

// oneEach refuses two names of a section that mean one thing.
func oneEach[T any](section string, of map[string]T) error {
	folded := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		plain := catalog.FoldName(strings.TrimSpace(name))
		if other, ok := folded[plain]; ok {
			return fmt.Errorf("%s %q and %q are one: names are matched without case", section, other, name)
		}
		folded[plain] = name
	}
	return nil
}

func (d document) text() (string, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(d), enc.Close()); err != nil {
		return "", fmt.Errorf("write document: %w", err)
	}
	return out.String(), nil
}

// docOf is a model in full, so that it can be restored to exactly this. node
// spells a peer ID.
func docOf(m catalog.Model, node func(id string) string) modelDoc {
	source, idle := sourceDoc(m.Source), duration(m.Scale.Idle)
	state, pin := string(m.State), node(m.Pin)
	aliases := append([]string{}, m.Aliases...)
	require, forbid := labelsOf(m.Labels.Require), labelsOf(m.Labels.Forbid)
	profiles := map[string]profileDoc{}
	for _, p := range m.Profiles {
		args := append([]string{}, p.Args...)
		profiles[p.ID] = profileDoc{&p.Engine, &args, &p.Context, &p.Parallel, &p.Embeddings, &p.Priority, &p.Weight}
	}
	return modelDoc{
		Source: &source, Aliases: &aliases, State: &state, Scale: &scaleDoc{&m.Scale.Min, &m.Scale.Max, &idle}, Pin: &pin,
		Limits: &limitsDoc{&m.Limits.Context, &m.Limits.MaxOutput, &m.Limits.EndRepetition}, Require: &require, Forbid: &forbid, Profiles: &profiles,
	}
}

func labelsOf(labels map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, labels)
	return out
}

// apply changes the settings of m that d names. pin is what d.Pin means. With
// prune, aliases and profiles that d does not name go.
func (d modelDoc) apply(m *catalog.Model, pin string, prune bool) {
	put(&m.Pin, d.Pin, func(string) string { return pin })
	put(&m.State, d.State, func(s string) catalog.ModelState { return catalog.ModelState(s) })
	if d.Source != nil && d.Source.Digest != "" {
		m.Source = catalog.Source(*d.Source)
	}
	if s := d.Scale; s != nil {
		put(&m.Scale.Min, s.Min, same)
		put(&m.Scale.Max, s.Max, same)
		put(&m.Scale.Idle, s.Idle, func(d duration) time.Duration { return time.Duration(d) })
		if s.Max == nil {
			m.Scale.Max = max(m.Scale.Max, m.Scale.Min)
		}
	}
	if l := d.Limits; l != nil {
		put(&m.Limits.Context, l.Context, same)
		put(&m.Limits.MaxOutput, l.MaxOutput, same)
		put(&m.Limits.EndRepetition, l.EndRepetition, same)
	}
	put(&m.Labels.Require, d.Require, noneIsNil)
	put(&m.Labels.Forbid, d.Forbid, noneIsNil)
	if d.Aliases != nil {
		m.Aliases = d.aliases(m.Aliases, prune)
	}
	if d.Profiles != nil {
		m.Profiles = d.profiles(m.Profiles, m.Source.Format, prune)
	}
}

func put[To, From any](to *To, from *From, as func(From) To) {
	if from != nil {
		*to = as(*from)
	}
}

func same[T any](v T) T { return v }

func noneIsNil(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	return maps.Clone(labels)
}

func (d modelDoc) aliases(have []string, prune bool) []string {
	out := []string(nil)
	if !prune {
		out = slices.Clone(have)
	}
	for _, alias := range *d.Aliases {
		if !slices.ContainsFunc(out, func(a string) bool { return catalog.FoldName(a) == catalog.FoldName(alias) }) {
			out = append(out, alias)
		}
	}
	slices.Sort(out)
	return out
}

func (d modelDoc) profiles(have []catalog.Profile, format string, prune bool) []catalog.Profile {
	var out []catalog.Profile
	for _, p := range have {
		if _, named := (*d.Profiles)[p.ID]; named || !prune {
			out = append(out, p)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(*d.Profiles)) {
		i := slices.IndexFunc(out, func(p catalog.Profile) bool { return p.ID == id })
		if i < 0 {
			fresh, _ := placement.DefaultProfile(format)
			fresh.ID = id
			out, i = append(out, fresh), len(out)
		}
		(*d.Profiles)[id].apply(&out[i])
	}
	slices.SortFunc(out, func(a, b catalog.Profile) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func (d profileDoc) apply(p *catalog.Profile) {
	put(&p.Engine, d.Engine, func(s string) string { return s })
	put(&p.Args, d.Args, func(a []string) []string { return append([]string(nil), a...) })
	put(&p.Context, d.Context, same)
	put(&p.Parallel, d.Parallel, same)
	put(&p.Embeddings, d.Embeddings, func(b bool) bool { return b })
	put(&p.Priority, d.Priority, same)
	put(&p.Weight, d.Weight, func(w float64) float64 { return w })
}

// MarshalYAML writes true and false as YAML's own.
func (p plainText) MarshalYAML() (any, error) {
	switch p {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return string(p), nil
}
