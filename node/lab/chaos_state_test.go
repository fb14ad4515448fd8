package lab

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// state is what one box shows of what all share, in a form that can be
// compared.
type state struct {
	nodes    []string // ID, name and what is said of them
	models   []string
	keys     []string // IDs
	tokens   []string
	replicas []string // model, slot, holder: the ready ones
	unready  []string // of any other state
	unlive   []string // living boxes that this one does not call live
	labels   map[string]string
	scale    string // replicas asked for of flex
}

// shows asks a box for its state. Of nodes it wants to know that the living,
// given by ID, are live.
func (c *chaos) shows(i int, living map[string]bool, labelled string) (s state, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	all, err := c.admins[i].Overview(ctx)
	if err != nil {
		return s, err
	}
	keys, err := c.admins[i].Keys(ctx)
	if err != nil {
		return s, err
	}
	tokens, err := c.admins[i].Tokens(ctx)
	if err != nil {
		return s, err
	}
	s.addNodes(all.Nodes, living, labelled)
	for _, m := range all.Models {
		s.models = append(s.models, fmt.Sprint(m.ID, m.Name, m.Digest, m.State, m.Wanted, m.Pin, m.Require, m.Forbid))
		if m.Name == modelFlex {
			s.scale = strconv.Itoa(m.Wanted)
		}
	}
	for _, r := range all.Replicas {
		if text := fmt.Sprintf("%s/%d on %s", r.Model, r.Slot, r.Node); r.State == string(catalog.ReplicaReady) {
			s.replicas = append(s.replicas, text)
		} else {
			s.unready = append(s.unready, text+" is "+r.State)
		}
	}
	for _, k := range keys.Keys {
		s.keys = append(s.keys, k.ID)
	}
	for _, k := range tokens.Tokens {
		s.tokens = append(s.tokens, fmt.Sprint(k.ID, " used ", k.Used))
	}
	for _, l := range [][]string{s.nodes, s.models, s.keys, s.tokens, s.replicas} {
		slices.Sort(l)
	}
	return s, nil
}

func (s *state) addNodes(nodes []ui.Node, living map[string]bool, labelled string) {
	for _, n := range nodes {
		s.nodes = append(s.nodes, fmt.Sprint(n.ID, n.Name, n.Role, n.Labels, n.Location, n.Cordoned, n.Draining))
		if living[n.ID] && n.State != ui.NodeLive && n.State != ui.NodeSelf {
			s.unlive = append(s.unlive, n.Name+" is "+n.State)
		}
		if n.ID != labelled {
			continue
		}
		s.labels = map[string]string{}
		for _, l := range n.Labels {
			key, value, _ := strings.Cut(l, "=")
			s.labels[key] = value
		}
	}
}

// unlike says in what two boxes differ.
func (s state) unlike(o state) string {
	var out []string
	for _, p := range []struct {
		what string
		a, b []string
	}{{"nodes", s.nodes, o.nodes}, {"models", s.models, o.models}, {"keys", s.keys, o.keys}, {"tokens", s.tokens, o.tokens}, {"replicas", s.replicas, o.replicas}} {
		if diff := cmp.Diff(p.a, p.b); diff != "" {
			out = append(out, p.what+":\n"+diff)
		}
	}
	return strings.Join(out, "\n")
}

// owners says where a slot has not exactly one ready owner.
func (s state) owners(wanted map[string]int) []string {
	var out []string
	for model, n := range wanted {
		for slot := range n {
			prefix := fmt.Sprintf("%s/%d on ", model, slot)
			got := slices.DeleteFunc(slices.Clone(s.replicas), func(r string) bool { return !strings.HasPrefix(r, prefix) })
			if len(got) != 1 {
				out = append(out, fmt.Sprintf("%s/%d has %d ready owners %v", model, slot, len(got), got))
			}
		}
	}
	for _, r := range s.replicas {
		name, rest, _ := strings.Cut(r, "/")
		slot, _, _ := strings.Cut(rest, " ")
		if k, err := strconv.Atoi(slot); err != nil || k >= wanted[name] {
			out = append(out, r+" is served and not wanted")
		}
	}
	slices.Sort(out)
	return out
}

// living maps the IDs of the boxes that run.
func (c *chaos) living() (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	ids := map[string]bool{}
	for i, a := range c.admins {
		s, err := a.Status(ctx)
		if err != nil {
			return nil, fmt.Errorf("status of %s: %w", c.names[i], err)
		}
		ids[s.Node.ID] = true
	}
	return ids, nil
}

// apart says in what the boxes are not one yet; "" is nothing.
func (c *chaos) apart(labelled string) (s state, why string) {
	living, err := c.living()
	if err != nil {
		return s, err.Error()
	}
	for i := range c.boxes {
		o, err := c.shows(i, living, labelled)
		switch {
		case err != nil:
			return s, fmt.Sprintf("%s: %v", c.names[i], err)
		case len(o.unlive) > 0:
			return s, fmt.Sprintf("on %s %v", c.names[i], o.unlive)
		case len(o.unready) > 0:
			return s, fmt.Sprintf("on %s %v", c.names[i], o.unready)
		case i == 0:
			s = o
			continue
		}
		if diff := s.unlike(o); diff != "" {
			return s, fmt.Sprintf("%s and %s differ in %s", c.names[0], c.names[i], diff)
		}
	}
	flex, _ := strconv.Atoi(s.scale)
	if bad := s.owners(map[string]int{modelDuo: 2, modelSlow: 2, modelFlex: flex}); len(bad) > 0 {
		return s, strings.Join(bad, "; ")
	}
	return s, ""
}
