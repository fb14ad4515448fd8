package ui

import (
	"encoding/json"
	"time"
)

// SchemaVersion is the version of every answer of /admin/v1. A field may be
// added under the same version; a changed meaning raises it.
const SchemaVersion = 1

// Schema begins every answer.
type Schema struct {
	SchemaVersion int `json:"schema_version"`
}

func (s *Schema) stamp() { s.SchemaVersion = SchemaVersion }

// List is a slice that is never null in JSON: readers in other languages need
// no special case for "nothing there". A plain []T can be assigned to it.
type List[T any] []T

// MarshalJSON writes an empty list as [].
func (l List[T]) MarshalJSON() ([]byte, error) {
	if len(l) == 0 {
		return []byte("[]"), nil
	}
	return json.Marshal([]T(l))
}

// Verdicts of a Status.
const (
	VerdictOK       = "OK"
	VerdictDegraded = "DEGRADED" // at least one problem
)

// Status is what `llmgw status` shows and what heads the page.
type Status struct {
	Schema
	Verdict  string        `json:"verdict"`
	Problems List[Problem] `json:"problems"`
	Node     NodeInfo      `json:"node"`
	Mesh     MeshInfo      `json:"mesh"`
}

// Problem is something that an operator should know, with what to type.
type Problem struct {
	Text string `json:"text"`
	Fix  string `json:"fix"` // a command or one sentence; empty: nothing to do but wait
}

// NodeInfo tells of the node that answers.
type NodeInfo struct {
	ID            string       `json:"id"` // peer ID
	Name          string       `json:"name"`
	Version       string       `json:"version"`
	PID           int          `json:"pid"`
	StateDir      string       `json:"state_dir"`
	API           List[string] `json:"api"`  // host:port of the public port
	Mesh          List[string] `json:"mesh"` // multiaddrs of the mesh port
	UptimeSeconds int64        `json:"uptime_seconds"`
	UIHint        string       `json:"ui_hint"` // how to open the page
	// Command is how a command line on this box begins, such as
	// "llmgw --state-dir D"; empty stands for "llmgw".
	Command string `json:"command"`
}

// MeshInfo tells of the mesh that the node is in.
type MeshInfo struct {
	ID          string `json:"id"`
	Provisional bool   `json:"provisional"` // a mesh of one that a join replaces silently
	Members     int    `json:"members"`     // not counting those that left
	Live        int    `json:"live"`        // this node included
}

// Node states. Only self and live nodes are routed to.
const (
	NodeSelf    = "self"
	NodeLive    = "live"
	NodeSuspect = "suspect"
	NodeDead    = "dead"
	NodeLeft    = "left"
)

// Node is a member of the mesh with what it last told of itself. Numbers that
// nobody measured are nil and null in JSON: unknown is never zero.
type Node struct {
	ID                 string       `json:"id"` // peer ID
	Name               string       `json:"name"`
	Role               string       `json:"role"`
	State              string       `json:"state"`
	Version            string       `json:"version"`
	LastContactSeconds *float64     `json:"last_contact_seconds"` // by our clock; nil for self and for a node never heard
	SkewSeconds        *float64     `json:"skew_seconds"`         // its clock minus ours
	Path               string       `json:"path"`                 // how it is reached, for a person
	RoundTripMS        *float64     `json:"round_trip_ms"`        // to it and back, the least of late; nil: not measured yet
	LastSyncSeconds    *float64     `json:"last_sync_seconds"`    // since it told how far it has this box's rows; nil: never
	Mismatch           string       `json:"mismatch"`             // why it cannot be talked to: no protocol version in common; empty: there is one
	RemembersDeletions int          `json:"remembers_deletions"`  // that this box keeps since the node has not heard of them
	API                List[string] `json:"api"`                  // host:port of its public port
	Stopping           bool         `json:"stopping"`
	Labels             List[string] `json:"labels"` // key=value, sorted
	Location           string       `json:"location"`
	Cordoned           bool         `json:"cordoned"`         // gets no new replicas
	Draining           bool         `json:"draining"`         // gets none, and gives away what others can have
	CordonedDevices    List[string] `json:"cordoned_devices"` // IDs; get no new replicas
	Hardware           Hardware     `json:"hardware"`
	Engines            List[Engine] `json:"engines"`
	DiskFree           *int64       `json:"disk_free"` // bytes where weights go
	Fetches            List[Fetch]  `json:"fetches"`   // downloads in progress
}

// Hardware is a box's hardware as measured.
type Hardware struct {
	Arch     string       `json:"arch"`
	OS       string       `json:"os"`
	Threads  *int         `json:"threads"`
	RAMTotal *int64       `json:"ram_total"` // bytes
	RAMFree  *int64       `json:"ram_free"`  // bytes available to a new process
	Devices  List[Device] `json:"devices"`
	Notes    List[string] `json:"notes"` // why a GPU could not be read, in the driver's words
}

// Device is something that holds weights and computes.
type Device struct {
	ID          string   `json:"id"`
	Kind        string   `json:"kind"` // cpu, nvidia, amd
	Name        string   `json:"name"`
	MemoryTotal *int64   `json:"memory_total"` // bytes
	MemoryFree  *int64   `json:"memory_free"`  // bytes
	BusyPercent *float64 `json:"busy_percent"`
	Celsius     *float64 `json:"celsius"`
}

// Fetch is a download in progress on a node.
type Fetch struct {
	Source string `json:"source"`
	As     string `json:"as"`
	Phase  string `json:"phase"`
	Done   int64  `json:"done"`  // bytes
	Total  *int64 `json:"total"` // bytes
}

// Sighting is a box seen on the link that is not in the mesh.
type Sighting struct {
	ID        string       `json:"id"`
	Name      string       `json:"name"`
	Addresses List[string] `json:"addresses"`
	Reason    string       `json:"reason"` // why it is not joined
}

// Model is a catalog entry and where it is served.
type Model struct {
	ID           string       `json:"id"`
	Name         string       `json:"name"`
	Aliases      List[string] `json:"aliases"`
	Source       string       `json:"source"` // URI
	Digest       string       `json:"digest"` // sha256:<hex>
	SizeBytes    *int64       `json:"size_bytes"`
	Format       string       `json:"format"`
	Architecture string       `json:"architecture"`
	State        string       `json:"state"` // served, stopped: what an admin asked for
	Max          int          `json:"max"`   // replicas that requests may ask for; 0: none is loaded on demand
	Limits       ModelLimits  `json:"limits"`
	IdleSeconds  int64        `json:"idle_seconds"` // a replica above wanted stays so long without a request; 0: until its memory is needed
	Wanted       int          `json:"wanted"`       // replicas asked for; 0: not loaded on purpose
	Pin          string       `json:"pin"`          // name of the only node that may hold it
	Require      List[string] `json:"require"`      // labels, key=value, that its holder must have
	Forbid       List[string] `json:"forbid"`       // labels that its holder must not have
	// DeclaredOn names the node whose config file, DeclaredIn, owns the entry: it is
	// changed only there. Empty: nobody's.
	DeclaredOn string       `json:"declared_on"`
	DeclaredIn string       `json:"declared_in"`
	Embeddings bool         `json:"embeddings"`  // answers /v1/embeddings
	Context    *int         `json:"context"`     // tokens of one request
	MemoryNeed *int64       `json:"memory_need"` // bytes of one replica, estimated
	Loaded     bool         `json:"loaded"`      // at least one replica is ready
	LoadedOn   List[string] `json:"loaded_on"`   // names of nodes with a ready replica
	OnDisk     List[string] `json:"on_disk"`     // names of live nodes that hold the weights
	Problem    string       `json:"problem"`     // why it is wanted and not loaded
	Fix        string       `json:"fix"`         // what to type about the problem
}

// Replica is one served copy of a model, as its holder reports it.
type Replica struct {
	Model        string       `json:"model"` // name
	Slot         int          `json:"slot"`
	Node         string       `json:"node"` // peer ID of the holder
	NodeName     string       `json:"node_name"`
	Epoch        uint64       `json:"epoch"`
	State        string       `json:"state"` // a catalog.ReplicaState
	StateSeconds *int64       `json:"state_seconds"`
	Reason       string       `json:"reason"`
	LastLines    List[string] `json:"last_lines"` // of the engine, when it failed
	Engine       string       `json:"engine"`
	Profile      string       `json:"profile"`
	Device       string       `json:"device"`
	Context      *int         `json:"context"` // tokens of one request, as the engine reports
	Slots        *int         `json:"slots"`   // requests at once
	InFlight     *int         `json:"in_flight"`
	Waiting      *int         `json:"waiting"`   // in the engine's own queue
	KVTokens     *int64       `json:"kv_tokens"` // that its KV cache holds
	KVUse        *float64     `json:"kv_use"`    // of that by what it computes, 0 to 1
	Restarts     int          `json:"restarts"`
	Adopted      bool         `json:"adopted"` // found running by a daemon that came back
	PID          *int         `json:"pid"`
}

// Engine is an engine that is usable on a node.
type Engine struct {
	Node     string `json:"node"` // peer ID
	NodeName string `json:"node_name"`
	Name     string `json:"name"`
	Version  string `json:"version"`
	From     string `json:"from"` // how it got there: configured, PATH, wheel, built in
	Path     string `json:"path"`
	Build    string `json:"build"` // SHA-256 of the binary
}

// Key is an API key without its secret.
type Key struct {
	ID      string       `json:"id"`
	Name    string       `json:"name"`
	Scopes  List[string] `json:"scopes"`
	Created time.Time    `json:"created"`
	Creator string       `json:"creator"` // name of the node that made it
	First   bool         `json:"first"`   // made at the first start

	Project string       `json:"project"` // name; empty: none
	Models  List[string] `json:"models"`  // patterns of models that it may use; none: all
	Require List[string] `json:"require"` // labels, key=value, of nodes that may answer it
	Forbid  List[string] `json:"forbid"`  // labels of nodes that may not
	Origins List[string] `json:"origins"` // of web pages that may use it, or *; none: no page
	Expires *time.Time   `json:"expires"` // nil: never
	Rules
}

// Token is a join token without its secret.
type Token struct {
	ID      string    `json:"id"`
	Role    string    `json:"role"`
	Uses    int       `json:"uses"` // how often it may be used in all
	Used    int       `json:"used"`
	Expires time.Time `json:"expires"`
	Issuer  string    `json:"issuer"` // name of the node that made it
}

// Setting is one configuration value with where it came from.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`  // secrets are never values, only the files that hold them
	Origin string `json:"origin"` // flag, environment, file, mesh setting, default
	// Pending is the mesh's setting that a restart brings; empty: nothing new.
	Pending string `json:"pending,omitempty"`
}

// Progress is a step of a long operation. Total is 0 while it is unknown, and
// then null on the wire. It converts to and from fetch.Progress.
type Progress struct {
	Phase       string
	Done, Total int64 // bytes
}
