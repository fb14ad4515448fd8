package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"llmgw/mesh/catalog"

	"go.yaml.in/yaml/v3"
)

type configFile struct {
	path   string
	values map[string]string
	models map[string]modelDoc
}

// SystemConfigFile is read by the system's own daemon when its state directory
// holds no file.
const SystemConfigFile = "/etc/llmgw/config.yaml"

func readConfigFile(path, stateDir string, table []setting) (configFile, []string, error) {
	if path != "" {
		return parseConfigFile(path, table)
	}
	for _, candidate := range []string{filepath.Join(stateDir, "config.yaml"), SystemConfigFile} {
		file, warnings, err := parseConfigFile(candidate, table)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return file, warnings, err
	}
	return configFile{}, nil, nil
}

func parseConfigFile(path string, table []setting) (configFile, []string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return configFile{}, nil, fmt.Errorf("read config file: %w", err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(raw, &tree); err != nil {
		return configFile{}, nil, fmt.Errorf("read config file %s: %w", path, err)
	}
	if v, ok := tree["version"]; !ok || fmt.Sprint(v) != strconv.Itoa(ConfigVersion) {
		return configFile{}, nil, fmt.Errorf("read config file %s: it must say `version: %d` (it says %v)", path, ConfigVersion, v)
	}
	delete(tree, "version")
	file := configFile{path: path, values: map[string]string{}}
	if file.models, err = parseDeclared(raw); err != nil {
		return configFile{}, nil, fmt.Errorf("read config file %s: %w", path, err)
	}
	delete(tree, "models")
	flatten("", tree, file.values)
	var warnings []string
	for key := range file.values {
		if !slices.ContainsFunc(table, func(s setting) bool { return s.key == key }) {
			warnings = append(warnings, fmt.Sprintf("config file %s: unknown key %q is ignored", path, key))
		}
	}
	slices.Sort(warnings)
	return file, warnings, nil
}

// flatten turns nested maps into dotted keys and lists into comma lists.
func flatten(prefix string, tree map[string]any, out map[string]string) {
	for key, value := range tree {
		switch v := value.(type) {
		case map[string]any:
			flatten(prefix+key+".", v, out)
		case []any:
			parts := make([]string, len(v))
			for i, part := range v {
				parts[i] = fmt.Sprint(part)
			}
			out[prefix+key] = strings.Join(parts, ",")
		case nil:
		default:
			out[prefix+key] = fmt.Sprint(v)
		}
	}
}

// parseDeclared reads the models of a config file. Here an unknown field is an
// error: what is written wrong would be served wrong.
func parseDeclared(raw []byte) (map[string]modelDoc, error) {
	var d struct {
		Models map[string]modelDoc `yaml:"models"`
		Others map[string]any      `yaml:",inline"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&d); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(d.Models)) {
		if err := catalog.CheckName(name); err != nil {
			return nil, err
		}
		if d.Models[name].Source == nil || d.Models[name].Source.URI == "" {
			return nil, fmt.Errorf("model %q has no source", name)
		}
	}
	return d.Models, nil
}
