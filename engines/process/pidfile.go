package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"llmgw/mesh/catalog"
)

// pidfileVersion is raised when a reader of the old form would do harm.
const pidfileVersion = 1

const pidfileName = "engine.json"

// errNewerPidfile means that a newer llmgw wrote the file: its engine is left
// alone.
var errNewerPidfile = errors.New("pidfile was written by a newer version")

// record is a pidfile: enough to find the process again, to know that it is
// the same one, and to run it again. It holds the run's key, hence 0600.
type record struct {
	Version     int           `json:"version"`
	Boot        string        `json:"boot"`             // of the machine
	Run         string        `json:"run"`              // marker in the environment
	PID         int           `json:"pid"`              // 0: about to be started
	Start       uint64        `json:"start"`            // clock ticks after boot
	ArgvHash    string        `json:"argv_hash"`        // SHA-256 of the command line
	Port        int           `json:"port"`             //
	Key         string        `json:"key"`              //
	Epoch       uint64        `json:"epoch"`            //
	Fingerprint string        `json:"fingerprint"`      // of the profile
	Cgroup      string        `json:"cgroup,omitempty"` //
	Ready       bool          `json:"ready"`            // one token came back
	Cleared     uint64        `json:"cleared"`          // times that it emptied its KV cache, as was told
	Shard       catalog.Shard `json:"shard"`
}

func (r record) group() group {
	return group{leader: r.PID, start: r.Start, run: r.Run, cgroup: r.ownCgroup()}
}

// ownCgroup trusts the recorded path only where it is this run's.
func (r record) ownCgroup() string {
	if filepath.Base(r.Cgroup) != cgroupPrefix+r.Run {
		return ""
	}
	return r.Cgroup
}

// writePidfile replaces the pidfile in dir at once: a reader sees the old or
// the new one, also after a crash of the machine.
func writePidfile(dir string, r record) error {
	r.Version = pidfileVersion
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("write pidfile: %w", err)
	}
	path := filepath.Join(dir, pidfileName)
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write pidfile: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write pidfile: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write pidfile: %w", err)
	}
	return nil
}

func readPidfile(dir string) (record, error) {
	b, err := os.ReadFile(filepath.Join(dir, pidfileName))
	if err != nil {
		return record{}, fmt.Errorf("read pidfile: %w", err)
	}
	return parsePidfile(b)
}

func parsePidfile(b []byte) (record, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return record{}, fmt.Errorf("read pidfile: %w", err)
	}
	if head.Version > pidfileVersion {
		return record{}, fmt.Errorf("%w: %d, known is %d", errNewerPidfile, head.Version, pidfileVersion)
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("read pidfile: %w", err)
	}
	if r.Version < 1 || r.Run == "" || r.PID < 0 || r.PID == 1 || r.Shard.Model.ID == "" || r.Port < 0 || r.Port > 65535 {
		return record{}, errors.New("read pidfile: fields are missing")
	}
	return r, nil
}

func removePidfile(dir string) error {
	if err := os.Remove(filepath.Join(dir, pidfileName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove pidfile: %w", err)
	}
	return nil
}
