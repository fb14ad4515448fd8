package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"

	"llmgw/engines"
	"llmgw/mesh/catalog"
)

// hostDocument bounds one document of a host, in bytes.
const hostDocument = 4 << 20

// hostAPI asks a host for documents.
type hostAPI func(path string) (status int, body []byte, err error)

var errNoKind = errors.New("it answers, but not as Ollama, LM Studio, llama-server, vLLM or any server that lists models at /v1/models")

// json reads a document; false: the host has none that is read so.
func (get hostAPI) json(path string, into any) (bool, error) {
	status, body, err := get(path)
	if err != nil {
		return false, err
	}
	return status == http.StatusOK && json.Unmarshal(body, into) == nil, nil
}

// kindOf finds out what a host runs. The first that knows a document of its own
// is it: most of them answer some of the others' paths as well.
func kindOf(get hostAPI) (catalog.HostKind, error) {
	var props struct {
		Settings json.RawMessage `json:"default_generation_settings"`
	}
	if ok, err := get.json("/props", &props); err != nil || ok && props.Settings != nil {
		return catalog.HostLlamaCpp, err
	}
	var studio studioModels
	if ok, err := get.json("/api/v0/models", &studio); err != nil || ok && studio.known() {
		return catalog.HostLMStudio, err
	}
	var version struct {
		Version string `json:"version"`
	}
	if ok, err := get.json("/api/version", &version); err != nil || ok && version.Version != "" {
		return catalog.HostOllama, err
	}
	status, metrics, err := get("/metrics")
	if err != nil || status == http.StatusOK && bytes.Contains(metrics, []byte("\nvllm:")) {
		return catalog.HostVLLM, err
	}
	var list openModels
	if ok, err := get.json("/v1/models", &list); err != nil || ok && list.Data != nil {
		return catalog.HostOther, err
	}
	return "", errNoKind
}

// readHost gives what a host of a kind tells of itself.
func readHost(get hostAPI, kind catalog.HostKind) (catalog.HostStatus, error) {
	s := catalog.HostStatus{Kind: kind}
	var err error
	switch kind {
	case catalog.HostOllama:
		err = readOllama(get, &s)
	case catalog.HostLMStudio:
		err = readStudio(get, &s)
	default:
		err = readOpen(get, &s)
	}
	if err == nil && kind == catalog.HostLlamaCpp {
		err = readSlots(get, &s)
	}
	if err == nil && kind == catalog.HostVLLM {
		err = readMetrics(get, &s)
	}
	s.Models = fitting(s.Models)
	return s, err
}

// fitting bounds what a host's models take of its sponsor's presence, which all
// nodes keep.
func fitting(models []catalog.HostModel) []catalog.HostModel {
	const most = 8 << 10 // bytes of all names
	used := 0
	for i, m := range models {
		if used += len(m.Name); used > most || i == catalog.MaxHostModels {
			return models[:i]
		}
	}
	return models
}

// must is json for a document that has to be there.
func (get hostAPI) must(path string, into any) error {
	status, body, err := get(path)
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		return fmt.Errorf("it answers %s with status %d", path, status)
	case json.Unmarshal(body, into) != nil:
		return fmt.Errorf("what it answers %s with cannot be read", path)
	}
	return nil
}

func addModel(s *catalog.HostStatus, m catalog.HostModel) {
	const most = 256 // bytes of a name
	if m.Name != "" && len(m.Name) <= most {
		m.Context = bounded(m.Context)
		s.Models = append(s.Models, m)
	}
}

// bounded keeps a host's figures in what can be a number of tokens or requests.
func bounded(n int) int { return min(max(n, 0), math.MaxInt32) }

func readOllama(get hostAPI, s *catalog.HostStatus) error {
	type models struct {
		Models []struct {
			Name    string `json:"name"`
			Context int    `json:"context_length"`
		} `json:"models"`
	}
	var all, loaded models
	if err := get.must("/api/tags", &all); err != nil {
		return err
	}
	if err := get.must("/api/ps", &loaded); err != nil {
		return err
	}
	for _, m := range all.Models {
		one := catalog.HostModel{Name: m.Name, Cold: true}
		for _, l := range loaded.Models {
			if l.Name == m.Name {
				one.Cold, one.Context = false, l.Context
			}
		}
		addModel(s, one)
	}
	return nil
}

// studioModels is LM Studio's own list.
type studioModels struct {
	Data []struct {
		ID      string `json:"id"`
		State   string `json:"state"`
		Context int    `json:"loaded_context_length"`
	} `json:"data"`
}

func (m studioModels) known() bool { return len(m.Data) > 0 && m.Data[0].State != "" }

func readStudio(get hostAPI, s *catalog.HostStatus) error {
	var all studioModels
	if err := get.must("/api/v0/models", &all); err != nil {
		return err
	}
	for _, m := range all.Data {
		addModel(s, catalog.HostModel{Name: m.ID, Cold: m.State != "loaded", Context: m.Context})
	}
	return nil
}

// openModels is the list of OpenAI's API, with what vLLM adds.
type openModels struct {
	Data []struct {
		ID      string `json:"id"`
		Context int    `json:"max_model_len"`
	} `json:"data"`
}

func readOpen(get hostAPI, s *catalog.HostStatus) error {
	var all openModels
	if err := get.must("/v1/models", &all); err != nil {
		return err
	}
	for _, m := range all.Data {
		addModel(s, catalog.HostModel{Name: m.ID, Context: m.Context})
	}
	return nil
}

// readSlots asks a llama-server for its slots. One that was told not to show them
// leaves its load unknown.
func readSlots(get hostAPI, s *catalog.HostStatus) error {
	var props struct {
		Slots    int `json:"total_slots"`
		Settings struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	if err := get.must("/props", &props); err != nil {
		return err
	}
	s.Slots = bounded(props.Slots)
	for i := range s.Models {
		s.Models[i].Context = bounded(props.Settings.Context)
	}
	var slots []struct {
		Busy bool `json:"is_processing"`
	}
	ok, err := get.json("/slots", &slots)
	if err != nil || !ok {
		return err
	}
	s.LoadKnown = true
	for _, slot := range slots {
		if slot.Busy {
			s.InFlight++
		}
	}
	return nil
}

// readMetrics asks a vLLM for its requests. One without metrics leaves its load
// unknown.
func readMetrics(get hostAPI, s *catalog.HostStatus) error {
	status, body, err := get("/metrics")
	if err != nil || status != http.StatusOK {
		return err
	}
	l := engines.VLLMLoad(body)
	s.LoadKnown, s.InFlight = l.Known, l.Running+l.Waiting
	s.KVUse, s.KVTokens = catalog.KVStepped(l.KVUse), l.KVTokens
	return nil
}
