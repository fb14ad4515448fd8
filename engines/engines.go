// Package engines owns what llmgw knows of inference engines: one adapter a
// file, each a set of pure functions from a shard to the commands that serve
// it, the lists of flags and variables that a profile may set, and how to read
// an engine's own answers (health, models, properties).
//
// Nothing here starts a process, opens a connection or reads a file; that is
// the work of engines/process, which calls an adapter again each time it starts
// a process. So a profile that came from another node is checked on the box
// that would run it.
package engines

import (
	"errors"
	"fmt"

	"llmgw/mesh/catalog"
)

// Adapter turns shards into commands for one kind of engine.
// Every method is pure: same input, same answer, no effect.
type Adapter interface {
	// Name is the engine's name in profiles.
	Name() string
	// Formats are the weight formats that the engine reads.
	Formats() []string
	// Program is the executable that serves.
	Program() Program
	// Validate tells whether p may run on devices. It returns a *ProfileError
	// for what a user must change.
	Validate(p catalog.Profile, devices []catalog.Device) error
	// Commands are the processes of s, the one that serves last. Each command's
	// environment holds only what the engine needs beyond the empty one.
	Commands(s catalog.Shard, at Endpoint) ([]Command, error)
	// Probe tells how to ask a running engine how it is.
	Probe() Probe
	// Lacks is what the engine cannot do whatever it has loaded; Props tell the
	// rest.
	Lacks(p catalog.Profile) []catalog.Ability
}

// Program names an engine's executable.
type Program struct {
	Name string
	// Help are the arguments that print the flags it knows; nil when the
	// executable is our own and needs no asking.
	Help []string
}

// Endpoint is where an engine shall serve and what it gets for it.
type Endpoint struct {
	Host   string // loopback address
	Port   int
	Key    string // per run; handed over by environment only
	Binary string // absolute path of the program
	RunDir string // the replica's own directory
	Flags  Flags  // what the binary knows; the zero value: not asked
}

// Command is a process to start.
type Command struct {
	Path string
	Args []string // without the program's name
	Env  []string // NAME=value, on top of an empty environment
	Dir  string   // working directory; empty: the supervisor's choice
}

// ErrProfile is matched by every *ProfileError.
var ErrProfile = errors.New("profile is not allowed")

// ProfileError says what in a profile an engine cannot or must not run.
type ProfileError struct {
	Engine string
	Arg    string // the flag or field; may be empty
	Reason string
}

func (e *ProfileError) Error() string {
	if e.Arg == "" {
		return fmt.Sprintf("check %s profile: %s", e.Engine, e.Reason)
	}
	return fmt.Sprintf("check %s profile: %s: %s", e.Engine, e.Arg, e.Reason)
}

// Is makes errors.Is(err, ErrProfile) true.
func (e *ProfileError) Is(target error) bool { return target == ErrProfile }

// Adapters are the adapters of this build by engine name. The map is the
// caller's own.
func Adapters() map[string]Adapter {
	return map[string]Adapter{
		catalog.EngineLlamaCpp: LlamaCpp{},
		catalog.EngineSim:      Sim{},
	}
}
