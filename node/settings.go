package node

import (
	"strconv"
	"sync"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// originDefault and originMesh say that nobody set a value on this box.
const (
	originDefault = "default"
	originMesh    = "mesh setting"
)

// meshSettings is what the mesh's settings make of this node's configuration.
// What a flag, the environment or the file says has precedence.
type meshSettings struct {
	mu      sync.Mutex
	shown   []ui.Setting            // all, as in force
	base    map[string]string       // defaults of those that nobody set here
	turn    map[string]func(string) // what a change calls, by key; none: a restart takes it
	changed func(key, value string)
}

func newMeshSettings(own []ui.Setting) *meshSettings {
	m := &meshSettings{shown: own, base: map[string]string{}}
	for _, s := range own {
		if _, ok := catalog.MeshSetting(s.Name); ok && s.Origin == originDefault {
			m.base[s.Name] = s.Value
		}
	}
	return m
}

// follow takes what the mesh says. With boot every value is put in force, since
// the parts that take them are opened afterwards.
func (m *meshSettings) follow(said map[string]string, boot func(key, value string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := append([]ui.Setting(nil), m.shown...)
	for i, s := range next {
		fallback, ours := m.base[s.Name]
		if !ours {
			continue
		}
		value, origin := fallback, originDefault
		if v, ok := said[s.Name]; ok {
			value, origin = v, originMesh
		}
		turn := m.turn[s.Name]
		switch {
		case boot != nil:
			boot(s.Name, value)
		case s.Value == value:
		case turn == nil:
			next[i].Pending = value
			continue
		default:
			turn(value)
			m.changed(s.Name, value)
		}
		next[i].Value, next[i].Origin, next[i].Pending = value, origin, ""
	}
	m.shown = next
}

func (m *meshSettings) list() []ui.Setting {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shown
}

// bootSettings puts the mesh's settings in force before the parts are opened.
func (n *Node) bootSettings() error {
	said, err := n.catalog.Settings()
	if err != nil {
		return err
	}
	byKey := map[string]setting{}
	for _, s := range settings() {
		byKey[s.key] = s
	}
	n.settings.follow(said, func(key, value string) {
		if err := byKey[key].set(&n.cfg, value); err != nil {
			n.log.Warn("a mesh setting cannot be used here", "setting", key, "error", err)
		}
	})
	n.setLevel(n.cfg.LogLevel)
	n.settings.turn = map[string]func(string){
		"discovery.lan":       func(v string) { n.mesh.SetLAN(v == "true") },
		"discovery.dht":       func(v string) { n.mesh.SetDHT(v == "true") },
		"discovery.auto_join": func(v string) { n.mesh.SetAutoJoin(v == "true") },
		"log.level":           n.setLevel,
		"router.prefix_routing": func(v string) {
			n.cfg.PrefixRouting = v == "true"
			n.router.SetPrefixes(n.cfg.PrefixRouting, n.cfg.PrefixTTL)
		},
		"router.strip_volatile": func(v string) { n.router.SetStripVolatile(v == "true") },
		"router.load_wait": func(v string) {
			n.cfg.LoadWait, _ = time.ParseDuration(v)
			n.setBounds()
		},
		"router.queue_time": func(v string) {
			n.cfg.QueueTime, _ = time.ParseDuration(v)
			n.setBounds()
		},
		"router.max_inflight": func(v string) {
			n.cfg.MaxInFlight, _ = strconv.Atoi(v)
			n.setBounds()
		},
		"router.limit_policy":    n.setPolicy,
		"router.trusted_proxies": func(v string) { n.setProxies(catalog.SplitList(v)) },
		"router.prefix_ttl": func(v string) {
			n.cfg.PrefixTTL, _ = time.ParseDuration(v) // the catalog checked it
			n.router.SetPrefixes(n.cfg.PrefixRouting, n.cfg.PrefixTTL)
		},
	}
	n.settings.changed = func(key, value string) { n.log.Info("a mesh setting is in force", "setting", key, "value", value) }
	return nil
}

// followSettings puts changes of the mesh's settings in force.
func (n *Node) followSettings() error {
	said, err := n.catalog.Settings()
	if err != nil {
		return err
	}
	n.settings.follow(said, nil)
	return nil
}

func (n *Node) setBounds() { n.router.SetBounds(n.cfg.MaxInFlight, n.cfg.QueueTime, n.cfg.LoadWait) }

func (n *Node) setLevel(text string) {
	if err := n.level.UnmarshalText([]byte(text)); err != nil {
		n.log.Warn("a log level cannot be used", "error", err)
	}
}
