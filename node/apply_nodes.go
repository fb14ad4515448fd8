package node

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"llmgw/mesh/catalog"
)

func (p *plan) nodes(d document) error {
	if d.Nodes == nil {
		return nil
	}
	said, err := p.catalog.NodeSettings()
	if err != nil {
		return err
	}
	errs := []error{}
	named := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(d.Nodes)) {
		id, err := p.nodeID(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if named[id] {
			errs = append(errs, fmt.Errorf("node %q stands there twice", name))
		}
		named[id] = true
		errs = append(errs, p.node(id, d.Nodes[name], said[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(said)) {
		if p.prune && !named[id] && !said[id].Unreadable {
			empty := nodeDocOf(catalog.NodeSettings{})
			errs = append(errs, p.node(id, empty, said[id]))
		}
	}
	return errors.Join(errs...)
}

func (p *plan) node(id string, d nodeDoc, have catalog.NodeSettings) error {
	want := catalog.NodeSettings{Peer: id, Labels: labelsOf(have.Labels), Location: have.Location, Cordoned: have.Cordoned, Draining: have.Draining, CordonedDevices: slices.Clone(have.CordonedDevices)}
	d.apply(&want, p.prune)
	for _, key := range slices.Sorted(maps.Keys(want.Labels)) {
		if err := catalog.CheckLabel(key, want.Labels[key]); err != nil {
			return fmt.Errorf("node %s: %w", p.view.name(id), err)
		}
	}
	if p.differ("node", p.view.spell(id), nodeFields(have), nodeFields(want)) {
		p.writes = append(p.writes, func() error {
			return p.catalog.UpdateNode(id, func(s *catalog.NodeSettings) error { d.apply(s, p.prune); return nil })
		})
	}
	return nil
}

func (d nodeDoc) apply(s *catalog.NodeSettings, prune bool) {
	put(&s.Location, d.Location, func(t string) string { return t })
	put(&s.Cordoned, d.Cordoned, func(b bool) bool { return b })
	put(&s.Draining, d.Draining, func(b bool) bool { return b })
	if d.Labels != nil {
		if prune {
			clear(s.Labels)
		}
		maps.Copy(s.Labels, *d.Labels)
	}
	if d.CordonedDevices != nil {
		if prune {
			s.CordonedDevices = nil
		}
		s.CordonedDevices = append(slices.Clone(s.CordonedDevices), *d.CordonedDevices...)
		slices.Sort(s.CordonedDevices)
		s.CordonedDevices = slices.Compact(s.CordonedDevices)
	}
}

func nodeFields(s catalog.NodeSettings) []field {
	out := []field{{"location", s.Location}, {"cordoned", fmt.Sprint(s.Cordoned)}, {"draining", fmt.Sprint(s.Draining)}, {"cordoned devices", strings.Join(s.CordonedDevices, ",")}}
	for key, value := range s.Labels {
		out = append(out, field{"label " + key, cmp.Or(value, `""`)})
	}
	slices.SortFunc(out, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return out
}
