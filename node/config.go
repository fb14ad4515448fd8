package node

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// Config is everything that is set on one box and never shared. Each value
// comes from a flag, else LLMGW_*, else the YAML file, else a default.
type Config struct {
	StateDir       string
	Name           string
	API            string // ADDR:PORT of the public port
	Mesh           string // ADDR:PORT of the mesh port
	MeshSecretFile string
	Peers          []string
	LAN            bool     // announce this box on the link and look for others, by mDNS
	AutoJoin       bool     // let boxes with the same mesh secret that are seen join by themselves
	DHT            bool     // look for members that moved over a table among members
	DHTBootstrap   []string // members that the table begins with, in the form of Peers
	LogFormat      string   // auto, text or json
	LogLevel       string
	LlamaServer    string // path of a llama-server that the box's owner chose
	EnginePorts    [2]int // first and last port of engines on loopback
	MetricsPublic  bool
	PrefixRouting  bool
	PrefixTTL      time.Duration
	StripVolatile  bool                // take lines that change with each turn out of prompts
	LoadWait       time.Duration       // of requests, for their model
	QueueTime      time.Duration       // of requests, for a replica with room
	MaxInFlight    int                 // requests for engines at once; 0: no bound
	LimitPolicy    string              // share, owner or loose
	TrustedProxies []string            // networks whose forwarded headers count
	CacheDir       string              // verified downloads are looked up and left here; empty: none
	Models         map[string]modelDoc // that the config file declares, by name
	ModelsFile     string              // that config file
}

// ConfigError says which value cannot be used, where it was set and why.
type ConfigError struct {
	Key, Value, Origin string
	Err                error
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("setting %s = %q (from %s): %v", e.Key, e.Value, e.Origin, e.Err)
}

func (e *ConfigError) Unwrap() error { return e.Err }

// ConfigVersion is the only version of the file that this build reads.
const ConfigVersion = 1

// setting describes one key: its names and how a text becomes a value.
type setting struct {
	key, env, flag string
	fallback       func() string
	get            func(*Config) string
	set            func(*Config, string) error
}

func text(key, env, flag string, field func(*Config) *string, fallback func() string) setting {
	return setting{key, env, flag, fallback,
		func(c *Config) string { return *field(c) },
		func(c *Config, v string) error { *field(c) = v; return nil }}
}

func address(key, env, flag string, field func(*Config) *string, fallback string) setting {
	s := text(key, env, flag, field, fixed(fallback))
	s.set = func(c *Config, v string) error {
		if err := checkAddress(v); err != nil {
			return err
		}
		*field(c) = v
		return nil
	}
	return s
}

func boolean(key, env, flag string, field func(*Config) *bool, fallback string) setting {
	return setting{key, env, flag, fixed(fallback),
		func(c *Config) string { return strconv.FormatBool(*field(c)) },
		func(c *Config, v string) (err error) {
			if *field(c), err = strconv.ParseBool(v); err != nil {
				return fmt.Errorf("is neither true nor false")
			}
			return nil
		}}
}

func period(key, env string, field func(*Config) *time.Duration, fallback string) setting {
	return setting{key, env, "", fixed(fallback),
		func(c *Config) string { return field(c).String() },
		func(c *Config, v string) error {
			d, err := time.ParseDuration(v)
			if err != nil || d <= 0 {
				return fmt.Errorf("is no duration, as in 30m")
			}
			*field(c) = d
			return nil
		}}
}

func count(key, env string, field func(*Config) *int, fallback string) setting {
	return setting{key, env, "", fixed(fallback),
		func(c *Config) string { return strconv.Itoa(*field(c)) },
		func(c *Config, v string) error {
			n, err := strconv.ParseUint(v, 10, 31)
			if err != nil {
				return fmt.Errorf("is no whole number from 0 on")
			}
			*field(c) = int(n)
			return nil
		}}
}

func oneOf(s setting, allowed ...string) setting {
	set := s.set
	s.set = func(c *Config, v string) error {
		if !slices.Contains(allowed, v) {
			return fmt.Errorf("is not one of %s", strings.Join(allowed, ", "))
		}
		return set(c, v)
	}
	return s
}

// choices are those of the mesh's setting of the same name.
func choices(key string) []string {
	s, _ := catalog.MeshSetting(key)
	return s.Choices
}

func fixed(v string) func() string { return func() string { return v } }

// settings is the whole table. The state directory comes first: the default
// place of the file depends on it.
func settings() []setting {
	return []setting{
		text("state_dir", "LLMGW_STATE_DIR", "--state-dir", func(c *Config) *string { return &c.StateDir }, DefaultStateDir),
		text("name", "LLMGW_NAME", "--name", func(c *Config) *string { return &c.Name }, hostname),
		address("api", "LLMGW_API", "--api", func(c *Config) *string { return &c.API }, ":8770"),
		address("mesh", "LLMGW_MESH", "--mesh", func(c *Config) *string { return &c.Mesh }, ":8771"),
		text("mesh_secret_file", "LLMGW_MESH_SECRET_FILE", "--mesh-secret-file", func(c *Config) *string { return &c.MeshSecretFile }, fixed("")),
		peerList("peers", "LLMGW_PEERS", "--peer", func(c *Config) *[]string { return &c.Peers }),
		boolean("discovery.lan", "LLMGW_DISCOVERY_LAN", "--no-mdns", func(c *Config) *bool { return &c.LAN }, "true"),
		boolean("discovery.auto_join", "LLMGW_DISCOVERY_AUTO_JOIN", "", func(c *Config) *bool { return &c.AutoJoin }, "true"),
		boolean("discovery.dht", "LLMGW_DISCOVERY_DHT", "", func(c *Config) *bool { return &c.DHT }, "false"),
		peerList("discovery.dht_bootstrap", "LLMGW_DISCOVERY_DHT_BOOTSTRAP", "", func(c *Config) *[]string { return &c.DHTBootstrap }),
		oneOf(text("log.format", "LLMGW_LOG_FORMAT", "--log-format", func(c *Config) *string { return &c.LogFormat }, fixed("auto")), "auto", "text", "json"),
		oneOf(text("log.level", "LLMGW_LOG_LEVEL", "--log-level", func(c *Config) *string { return &c.LogLevel }, fixed("info")), choices("log.level")...),
		text("engines.llamacpp.path", "LLMGW_LLAMA_SERVER", "", func(c *Config) *string { return &c.LlamaServer }, fixed("")),
		{"engines.ports", "LLMGW_ENGINE_PORTS", "", fixed("8780-8879"),
			func(c *Config) string { return fmt.Sprintf("%d-%d", c.EnginePorts[0], c.EnginePorts[1]) }, setPorts},
		boolean("metrics.public", "LLMGW_METRICS_PUBLIC", "", func(c *Config) *bool { return &c.MetricsPublic }, "false"),
		boolean("router.prefix_routing", "LLMGW_ROUTER_PREFIX_ROUTING", "", func(c *Config) *bool { return &c.PrefixRouting }, "true"),
		oneOf(text("router.limit_policy", "LLMGW_ROUTER_LIMIT_POLICY", "", func(c *Config) *string { return &c.LimitPolicy }, fixed("share")), choices("router.limit_policy")...),
		networks("router.trusted_proxies", "LLMGW_ROUTER_TRUSTED_PROXIES", func(c *Config) *[]string { return &c.TrustedProxies }),
		boolean("router.strip_volatile", "LLMGW_ROUTER_STRIP_VOLATILE", "", func(c *Config) *bool { return &c.StripVolatile }, "false"),
		period("router.load_wait", "LLMGW_ROUTER_LOAD_WAIT", func(c *Config) *time.Duration { return &c.LoadWait }, "10m0s"),
		count("router.max_inflight", "LLMGW_ROUTER_MAX_INFLIGHT", func(c *Config) *int { return &c.MaxInFlight }, "0"),
		period("router.queue_time", "LLMGW_ROUTER_QUEUE_TIME", func(c *Config) *time.Duration { return &c.QueueTime }, "1m0s"),
		period("router.prefix_ttl", "LLMGW_ROUTER_PREFIX_TTL", func(c *Config) *time.Duration { return &c.PrefixTTL }, "30m0s"),
		text("cache_dir", "LLMGW_CACHE_DIR", "", func(c *Config) *string { return &c.CacheDir }, fixed("")),
	}
}

func peerList(key, env, flag string, field func(*Config) *[]string) setting {
	return setting{key, env, flag, fixed(""),
		func(c *Config) string { return strings.Join(*field(c), ",") },
		func(c *Config, v string) error { *field(c) = catalog.SplitList(v); return nil }}
}

func networks(key, env string, field func(*Config) *[]string) setting {
	s := peerList(key, env, "", field)
	set := s.set
	s.set = func(c *Config, v string) error {
		for _, text := range catalog.SplitList(v) {
			if _, err := catalog.ParseNetwork(text); err != nil {
				return fmt.Errorf("has %q, which is neither an address nor a network, as 10.0.0.0/8", text)
			}
		}
		return set(c, v)
	}
	return s
}

func setPorts(c *Config, v string) error {
	var first, last int
	if n, err := fmt.Sscanf(v, "%d-%d", &first, &last); n != 2 || err != nil || first < 1 || last > 65535 || first > last {
		return fmt.Errorf("is not FIRST-LAST with ports between 1 and 65535")
	}
	c.EnginePorts = [2]int{first, last}
	return nil
}

func checkAddress(v string) error {
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return fmt.Errorf("is not ADDR:PORT: %w", err)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	return nil
}

// DefaultStateDir is where a daemon keeps its state when nobody said more:
// the system's own place as root, else the user's.
func DefaultStateDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/llmgw"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "llmgw")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "llmgw-state"
	}
	return filepath.Join(home, ".local", "state", "llmgw")
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "llmgw"
	}
	short, _, _ := strings.Cut(name, ".")
	return short
}

// Sources is where LoadConfig looks. Flags holds only what was given, by
// setting key.
type Sources struct {
	Flags map[string]string
	Env   func(string) (string, bool)
	File  string // "": config.yaml in the state directory, or /etc/llmgw/config.yaml
}

// LoadConfig merges the sources and says where each value came from. Warnings
// name keys of the file that this build does not know.
func LoadConfig(src Sources) (cfg Config, origins []ui.Setting, warnings []string, err error) {
	table := settings()
	file, warnings := configFile{}, []string(nil)
	for i, s := range table {
		if i == 1 { // the state directory is known now
			if file, warnings, err = readConfigFile(src.File, cfg.StateDir, table); err != nil {
				return Config{}, nil, nil, err
			}
		}
		value, origin := s.lookup(src, file)
		if err := s.set(&cfg, value); err != nil {
			return Config{}, nil, nil, &ConfigError{Key: s.key, Value: value, Origin: origin, Err: err}
		}
		origins = append(origins, ui.Setting{Name: s.key, Value: s.get(&cfg), Origin: origin})
	}
	if cfg.StateDir, err = filepath.Abs(cfg.StateDir); err != nil {
		return Config{}, nil, nil, fmt.Errorf("make the state directory absolute: %w", err)
	}
	origins[0].Value = cfg.StateDir
	if cfg.Models, cfg.ModelsFile = file.models, file.path; len(file.models) > 0 {
		names := slices.Sorted(maps.Keys(file.models))
		origins = append(origins, ui.Setting{Name: "models", Value: strings.Join(names, ","), Origin: "file " + file.path})
	}
	return cfg, origins, warnings, nil
}

func (s setting) lookup(src Sources, file configFile) (value, origin string) {
	if v, ok := src.Flags[s.key]; ok {
		return v, "flag " + s.flag
	}
	if v, ok := src.Env(s.env); ok && v != "" {
		return v, "env " + s.env
	}
	if v, ok := file.values[s.key]; ok {
		return v, "file " + file.path
	}
	return s.fallback(), originDefault
}
