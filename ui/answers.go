package ui

import "time"

// NodeList is the answer of GET /admin/v1/nodes.
type NodeList struct {
	Schema
	Nodes List[Node]     `json:"nodes"` // self first, then by name
	Seen  List[Sighting] `json:"seen"`  // boxes on the link that are not joined
}

// ModelList is the answer of GET /admin/v1/models.
type ModelList struct {
	Schema
	Models List[Model] `json:"models"`
}

// ReplicaList is the answer of GET /admin/v1/replicas.
type ReplicaList struct {
	Schema
	Replicas List[Replica] `json:"replicas"`
}

// EngineList is the answer of GET /admin/v1/engines.
type EngineList struct {
	Schema
	Engines List[Engine] `json:"engines"`
}

// KeyList is the answer of GET /admin/v1/keys.
type KeyList struct {
	Schema
	Keys List[Key] `json:"keys"`
}

// TokenList is the answer of GET /admin/v1/tokens.
type TokenList struct {
	Schema
	Tokens List[Token] `json:"tokens"`
}

// SettingList is the answer of GET /admin/v1/config.
type SettingList struct {
	Schema
	Settings List[Setting] `json:"settings"`
}

// Overview is the answer of GET /admin/v1/overview: everything that the page
// shows, read at one time, so that its parts fit each other.
type Overview struct {
	Schema
	Status   Status            `json:"status"`
	Nodes    List[Node]        `json:"nodes"`
	Seen     List[Sighting]    `json:"seen"`
	Models   List[Model]       `json:"models"`
	Replicas List[Replica]     `json:"replicas"`
	Settings List[MeshSetting] `json:"settings"`
}

// LoadRequest asks for one replica of a model, on Node (name or peer ID) when
// that is given.
type LoadRequest struct {
	Model string `json:"model"`
	Node  string `json:"node"`
	// OnDemand loads as a request would: within Scale.Max, until it is idle.
	OnDemand bool `json:"on_demand"`
}

// LoadResult tells what was written. The replica is usually not ready yet.
type LoadResult struct {
	Schema
	Model    string       `json:"model"`     // name
	NodeName string       `json:"node_name"` // chosen holder; empty: none can hold it yet
	Reason   string       `json:"reason"`    // why there, or why nowhere
	Warnings List[string] `json:"warnings"`  // such as a pin to a member that is away
}

// UnloadRequest asks for no replica of a model.
type UnloadRequest struct {
	Model string `json:"model"`
}

// UnloadResult names the model that will be unloaded.
type UnloadResult struct {
	Schema
	Model string `json:"model"` // name
}

// RemoveModelRequest names a model whose catalog entry shall end.
type RemoveModelRequest struct {
	Model string `json:"model"`
}

// RemoveModelResult names the model whose entry ended.
type RemoveModelResult struct {
	Schema
	Model string `json:"model"` // name
}

// PullRequest asks for weights from a source and a catalog entry named As.
type PullRequest struct {
	Source     string `json:"source"`
	As         string `json:"as"`
	Embeddings bool   `json:"embeddings"`
}

// PullResult is the end of a pull.
type PullResult struct {
	Schema
	Model Model `json:"model"`
}

// InstallRequest asks for an engine on this node.
type InstallRequest struct {
	Engine string `json:"engine"`
}

// InstallResult is the end of an installation.
type InstallResult struct {
	Schema
	Engine Engine `json:"engine"`
}

// TokenRequest asks for a join token. Zero values take the defaults of one
// hour, one use, role admin.
type TokenRequest struct {
	TTLSeconds int64  `json:"ttl_seconds"`
	Uses       int    `json:"uses"`
	Role       string `json:"role"`
}

// TokenResult is a new join token; its text is told only here.
type TokenResult struct {
	Schema
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// JoinRequest asks to become a member by token.
type JoinRequest struct {
	Token   string `json:"token"`
	Replace bool   `json:"replace"` // also when the present mesh is not provisional
}

// JoinResult tells which mesh was joined and what became of the old one.
type JoinResult struct {
	Schema
	MeshID   string `json:"mesh_id"`
	Issuer   string `json:"issuer"`   // name or peer ID of the node that admitted us
	Replaced bool   `json:"replaced"` // a mesh of this box's own was dropped; its first key is void
	Archive  string `json:"archive"`  // file with the old state, if one was written
}

// LeaveResult tells which mesh was left.
type LeaveResult struct {
	Schema
	MeshID string `json:"mesh_id"` // the mesh that was left
}

// KeyRequest asks for an API key.
type KeyRequest struct {
	Name   string       `json:"name"`
	Scopes List[string] `json:"scopes"` // infer, metrics, admin; none: infer
	KeyChange
}

// KeyResult is a new API key; its text is told only here.
type KeyResult struct {
	Schema
	ID  string `json:"id"`
	Key string `json:"key"`
}

// LinkResult is a link that opens the page once.
type LinkResult struct {
	Schema
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"`
}

// SessionRequest redeems the code of a link for a session cookie.
type SessionRequest struct {
	Code string `json:"code"`
}

// SessionResult tells when the session ends at the latest.
type SessionResult struct {
	Schema
	Expires time.Time `json:"expires"`
}
