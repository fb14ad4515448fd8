package catalog

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// NamespaceSettings holds what is set for the whole mesh: one row with a cell
// for each setting.
const NamespaceSettings = "settings"

// settingsRow is the one row of NamespaceSettings.
const settingsRow = "mesh"

// SettingKind is the type of a mesh setting's value.
type SettingKind string

// Kinds of settings. Addresses and networks are written as text with commas,
// durations as 90s, 30m or 1h30m.
const (
	SettingBool      SettingKind = "boolean"
	SettingChoice    SettingKind = "choice"
	SettingAddresses SettingKind = "addresses"
	SettingDuration  SettingKind = "duration"
	SettingNetworks  SettingKind = "networks"
	SettingNumber    SettingKind = "number"
)

// Setting describes one setting of the mesh. A node's own configuration of the
// same name has precedence over it.
type Setting struct {
	Key     string
	Kind    SettingKind
	Choices []string // of a SettingChoice
	// Restart: a node takes the value when its daemon starts.
	Restart bool
	Help    string
}

// MeshSettings lists the settings that this build knows, by key.
func MeshSettings() []Setting {
	return []Setting{
		{Key: "discovery.auto_join", Kind: SettingBool, Help: "boxes with the mesh's secret that are seen join by themselves"},
		{Key: "discovery.dht", Kind: SettingBool, Help: "look for members that moved over a table that members keep among themselves"},
		{Key: "discovery.dht_bootstrap", Kind: SettingAddresses, Restart: true, Help: "members that the table begins with, as host:port or multiaddr"},
		{Key: "discovery.lan", Kind: SettingBool, Help: "announce boxes on their link and look for others, by mDNS"},
		{Key: "log.level", Kind: SettingChoice, Choices: []string{"debug", "info", "warn", "error"}, Help: "what daemons log"},
		{Key: "metrics.public", Kind: SettingBool, Restart: true, Help: "/metrics wants no key"},
		{Key: "router.limit_policy", Kind: SettingChoice, Choices: []string{"share", "owner", "loose"}, Help: "how nodes agree on limits that are nearly used up"},
		{Key: "router.load_wait", Kind: SettingDuration, Help: "how long a request waits for its model to be loaded, at most 24h"},
		{Key: "router.max_inflight", Kind: SettingNumber, Help: "requests for engines that a node has at once, more are refused; 0: no bound"},
		{Key: "router.prefix_routing", Kind: SettingBool, Help: "send a prompt where its beginning is warm already"},
		{Key: "router.prefix_ttl", Kind: SettingDuration, Help: "how long a prompt counts as warm after its last use, at most 24h"},
		{Key: "router.queue_time", Kind: SettingDuration, Help: "how long a request waits while all replicas of its model are full, one of low priority ten times that"},
		{Key: "router.strip_volatile", Kind: SettingBool, Help: "take lines that agents change with each turn, such as their billing header, out of prompts"},
		{Key: "router.trusted_proxies", Kind: SettingNetworks, Help: "proxies whose X-Forwarded-For and Forwarded headers count, as addresses or networks"},
	}
}

// MeshSetting finds a setting by key.
func MeshSetting(key string) (Setting, bool) {
	all := MeshSettings()
	i := slices.IndexFunc(all, func(s Setting) bool { return s.Key == key })
	if i < 0 {
		return Setting{}, false
	}
	return all[i], true
}

// SettingError says why a setting cannot be set so.
type SettingError struct{ Key, Value, Why string }

func (e *SettingError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("setting %s: %s", e.Key, e.Why)
	}
	return fmt.Sprintf("setting %s = %q: %s", e.Key, e.Value, e.Why)
}

// parse reads a value as people write it into what a cell holds.
func (s Setting) parse(text string) (any, error) {
	text = strings.TrimSpace(text)
	if !utf8.ValidString(text) {
		return nil, &SettingError{s.Key, text, "is not UTF-8"}
	}
	switch s.Kind {
	case SettingBool:
		v, err := strconv.ParseBool(text)
		if err != nil {
			return nil, &SettingError{s.Key, text, "is neither true nor false"}
		}
		return v, nil
	case SettingChoice:
		if !slices.Contains(s.Choices, text) {
			return nil, &SettingError{s.Key, text, "is not one of " + strings.Join(s.Choices, ", ")}
		}
		return text, nil
	case SettingNumber:
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return nil, &SettingError{s.Key, text, "is no whole number from 0 on"}
		}
		return strconv.FormatUint(n, 10), nil
	case SettingDuration:
		d, err := time.ParseDuration(text)
		if err != nil || d < time.Second || d > 24*time.Hour {
			return nil, &SettingError{s.Key, text, "is no duration from 1s to 24h, as in 30m"}
		}
		return d.String(), nil
	}
	list := SplitList(text)
	for _, address := range list {
		if s.Kind == SettingNetworks {
			if _, err := ParseNetwork(address); err != nil {
				return nil, &SettingError{s.Key, text, fmt.Sprintf("%q is neither an address nor a network, as 10.0.0.0/8", address)}
			}
			continue
		}
		if !isAddress(address) {
			return nil, &SettingError{s.Key, text, fmt.Sprintf("%q is neither HOST:PORT nor a multiaddr", address)}
		}
	}
	return list, nil
}

// ParseNetwork reads a network, or an address as a network of one.
func ParseNetwork(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && !strings.Contains(a.Zone(), "/") { // as in fe80::%eth0/64
		a = a.Unmap()
		return a.Prefix(a.BitLen())
	}
	p, err := netip.ParsePrefix(text)
	if p.Addr().Is4In6() && p.Bits() >= 96 { // addresses are compared as those of IPv4
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), err
}

// isAddress looks at the shape alone: whether it can be dialed shows at a node.
func isAddress(text string) bool {
	if strings.HasPrefix(text, "/") {
		return strings.Count(text, "/") >= 4 && !hasBlank(text)
	}
	host, port, err := net.SplitHostPort(text)
	return err == nil && host != "" && isPort(port) && !hasBlank(host)
}

// hasBlank finds blanks, control characters and what is no text.
func hasBlank(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) })
}

// SplitList takes a list with commas apart: no blanks, nothing empty, nothing twice.
func SplitList(text string) []string {
	out := []string{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" && !slices.Contains(out, part) {
			out = append(out, part)
		}
	}
	return out
}

// Check says whether the setting can have this value, and how it is spelled.
func (s Setting) Check(text string) (string, error) {
	v, err := s.parse(text)
	if err != nil {
		return "", err
	}
	return spell(v), nil
}

func spell(v any) string {
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v)
	case []string:
		return strings.Join(v, ",")
	case string:
		return v
	}
	return ""
}

// read takes a cell's value; false for one that is unset, or that another
// version wrote and this one cannot use: a setting never stops a node.
func (s Setting) read(row crdt.Row) (string, bool) {
	if len(row.Cells[s.Key].Value) == 0 {
		return "", false
	}
	var v any
	var err error
	switch s.Kind {
	case SettingBool:
		var b bool
		err, v = decode(row, s.Key, &b), b
	case SettingAddresses, SettingNetworks:
		var l []string
		err, v = decode(row, s.Key, &l), l
	default:
		var t string
		err, v = decode(row, s.Key, &t), t
	}
	if err != nil {
		return "", false
	}
	text, err := s.Check(spell(v))
	return text, err == nil
}

// Settings reads what is set for the mesh, by key.
func (c *Catalog) Settings() (map[string]string, error) {
	row, _, err := c.store.Get(crdt.NewKey(NamespaceSettings, settingsRow))
	if err != nil {
		return nil, fmt.Errorf("read mesh settings: %w", err)
	}
	return settingsFromRow(row), nil
}

func settingsFromRow(row crdt.Row) map[string]string {
	out := map[string]string{}
	for _, s := range MeshSettings() {
		if v, ok := s.read(row); ok {
			out[s.Key] = v
		}
	}
	return out
}

// UpdateSettings changes what is set for the mesh: fn gets it as it stands, and
// only the cells that fn changed are written. A key that fn removed is unset.
// What cannot be set is a *SettingError, and nothing is written then.
func (c *Catalog) UpdateSettings(fn func(map[string]string) error) error {
	_, err := c.store.Update(func(tx *store.Tx) error {
		key := crdt.NewKey(NamespaceSettings, settingsRow)
		row, _, err := tx.Get(key)
		if err != nil {
			return err
		}
		want := settingsFromRow(row)
		if err := fn(want); err != nil {
			return err
		}
		have, err := settingCells(settingsFromRow(row))
		if err != nil {
			return err
		}
		cells, err := settingCells(want)
		if err != nil {
			return err
		}
		return writeSet(tx, key, have, cells)
	})
	if err != nil {
		return fmt.Errorf("update mesh settings: %w", err)
	}
	return nil
}

func settingCells(values map[string]string) (map[string]any, error) {
	cells := make(map[string]any, len(values))
	for key, text := range values {
		s, ok := MeshSetting(key)
		if !ok {
			return nil, &SettingError{Key: key, Why: "is no setting of the mesh"}
		}
		v, err := s.parse(text)
		if err != nil {
			return nil, err
		}
		cells[key] = v
	}
	return cells, nil
}
