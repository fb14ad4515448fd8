package catalog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// NamespaceNodes holds what an admin says of nodes. What a node says of itself
// is presence.
const NamespaceNodes = "nodes"

// Cells of a node's row. Each label and each cordoned device is a cell.
const (
	cellLocation = "location"
	cellCordon   = "cordon"
	cellDrain    = "drain"
	labelPrefix  = "label/"
	devicePrefix = "cordon/"
)

// NodeSettings is what an admin says of a node.
type NodeSettings struct {
	Peer     string            `json:"peer"`
	Location string            `json:"location,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Cordoned nodes get no new replicas; what they serve goes on.
	Cordoned bool `json:"cordoned,omitempty"`
	// Draining nodes get no new replicas, and what they serve moves to nodes that can
	// have it.
	Draining bool `json:"draining,omitempty"`
	// CordonedDevices get no new replicas, by device ID, sorted.
	CordonedDevices []string `json:"cordoned_devices,omitempty"`
	// Unreadable: what was said cannot be read. Until it can be, the node counts as
	// cordoned, and no selector of labels takes it.
	Unreadable bool `json:"unreadable,omitempty"`
}

// labelUnreadable stands for labels that cannot be read. No label can have that name.
const labelUnreadable = "!unreadable"

// LabelError says why a label cannot be used.
type LabelError struct{ Label, Why string }

func (e *LabelError) Error() string { return fmt.Sprintf("label %q: %s", e.Label, e.Why) }

// maxLabelBytes keeps labels fit for tables and metric labels.
const maxLabelBytes = 63

// plainCharacters are what names of all kinds are made of.
const plainCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

// CheckLabel says whether key=value may be a label: letters, digits, '.', '_',
// '-' and '/' in the key, the same without '/' in the value.
func CheckLabel(key, value string) error {
	label := key + "=" + value
	switch {
	case key == "":
		return &LabelError{label, "has no key"}
	case len(key) > maxLabelBytes || len(value) > maxLabelBytes:
		return &LabelError{label, fmt.Sprintf("key or value is longer than %d bytes", maxLabelBytes)}
	case strings.Trim(key, plainCharacters+"/") != "" || strings.Trim(value, plainCharacters) != "":
		return &LabelError{label, "letters, digits, '.', '_' and '-' are allowed, and '/' in the key"}
	}
	return nil
}

func nodeKey(peer string) crdt.Key { return crdt.NewKey(NamespaceNodes, peer) }

// NodeSettings lists what was said of nodes, by peer ID. What cannot be read is listed
// too, as Unreadable.
func (c *Catalog) NodeSettings() (map[string]NodeSettings, error) {
	items, err := c.store.List(NamespaceNodes)
	if err != nil {
		return nil, fmt.Errorf("list node settings: %w", err)
	}
	out := make(map[string]NodeSettings, len(items))
	for _, item := range items {
		s, err := nodeSettingsFromRow(item.Key, item.Row)
		if err != nil {
			parts, err := keyParts(item.Key, "node", 1)
			if err != nil {
				continue // it is about nobody
			}
			s = NodeSettings{Peer: parts[0], Labels: map[string]string{labelUnreadable: "true"}, Cordoned: true, Unreadable: true}
		}
		out[s.Peer] = s
	}
	return out, nil
}

// UpdateNode changes what is said of a node: fn gets it as it stands, and only
// the cells that fn changed are written.
func (c *Catalog) UpdateNode(peer string, fn func(*NodeSettings) error) error {
	_, err := c.store.Update(func(tx *store.Tx) error {
		row, _, err := tx.Get(nodeKey(peer))
		if err != nil {
			return err
		}
		have, err := nodeSettingsFromRow(nodeKey(peer), row)
		if err != nil {
			return err
		}
		want, err := nodeSettingsFromRow(nodeKey(peer), row) // shares nothing with have
		if err != nil {
			return err
		}
		if err := fn(&want); err != nil {
			return err
		}
		return writeNode(tx, nodeKey(peer), have, want)
	})
	if err != nil {
		return fmt.Errorf("update node: %w", err)
	}
	return nil
}

func nodeSettingsFromRow(key crdt.Key, row crdt.Row) (NodeSettings, error) {
	parts, err := keyParts(key, "node", 1)
	if err != nil {
		return NodeSettings{}, unreadable(key, row, err)
	}
	s := NodeSettings{Peer: parts[0], Labels: map[string]string{}}
	err = errors.Join(decode(row, cellLocation, &s.Location), decode(row, cellCordon, &s.Cordoned), decode(row, cellDrain, &s.Draining))
	for cell := range row.Cells {
		if label, ok := strings.CutPrefix(cell, labelPrefix); ok && len(row.Cells[cell].Value) > 0 {
			var value string
			err = errors.Join(err, decode(row, cell, &value))
			s.Labels[label] = value
		}
		if device, ok := strings.CutPrefix(cell, devicePrefix); ok {
			var cordoned bool
			err = errors.Join(err, decode(row, cell, &cordoned))
			if cordoned {
				s.CordonedDevices = append(s.CordonedDevices, device)
			}
		}
	}
	slices.Sort(s.CordonedDevices)
	if err != nil {
		return NodeSettings{}, unreadable(key, row, err)
	}
	return s, nil
}

func writeNode(tx *store.Tx, key crdt.Key, have, want NodeSettings) error {
	for _, label := range slices.Sorted(maps.Keys(want.Labels)) {
		if err := CheckLabel(label, want.Labels[label]); err != nil {
			return err
		}
	}
	if have.Location != want.Location {
		if err := set(tx, key, cellLocation, want.Location); err != nil {
			return err
		}
	}
	if have.Cordoned != want.Cordoned {
		if err := set(tx, key, cellCordon, want.Cordoned); err != nil {
			return err
		}
	}
	if have.Draining != want.Draining {
		if err := set(tx, key, cellDrain, want.Draining); err != nil {
			return err
		}
	}
	if err := writeSet(tx, key, labelCells(have.Labels), labelCells(want.Labels)); err != nil {
		return err
	}
	return writeSet(tx, key, deviceCells(have.CordonedDevices), deviceCells(want.CordonedDevices))
}

func labelCells(labels map[string]string) map[string]any {
	cells := make(map[string]any, len(labels))
	for k, v := range labels {
		cells[labelPrefix+k] = v
	}
	return cells
}

func deviceCells(devices []string) map[string]any {
	cells := make(map[string]any, len(devices))
	for _, d := range devices {
		cells[devicePrefix+d] = true
	}
	return cells
}
