package ui

import "context"

// Backend is what the admin API asks of the node. Each method may be called by
// many requests at once. An error that is an *Error or an *APIError decides
// the HTTP answer; any other is a fault of ours (500).
type Backend interface {
	BoxAdmin
	MeshAdmin
	MemberAdmin
	ModelAdmin
	PlacementAdmin
	EngineAdmin
	KeyAdmin
	AccessAdmin
	StateAdmin
	DoctorAdmin
	SettingAdmin
	DocumentAdmin
	RouteAdmin
	OutsideAdmin
}

// BoxAdmin tells of this daemon.
type BoxAdmin interface {
	Status(ctx context.Context) (Status, error)
	Config(ctx context.Context) ([]Setting, error)
}

// MeshAdmin shows and changes membership.
type MeshAdmin interface {
	// Nodes returns the members, self first, and boxes seen that are not members.
	Nodes(ctx context.Context) ([]Node, []Sighting, error)
	Tokens(ctx context.Context) ([]Token, error)
	NewToken(ctx context.Context, r TokenRequest) (TokenResult, error)
	Join(ctx context.Context, r JoinRequest) (JoinResult, error)
	Leave(ctx context.Context) (LeaveResult, error)
}

// ModelAdmin shows and changes what the mesh serves.
type ModelAdmin interface {
	Models(ctx context.Context) ([]Model, error)
	Replicas(ctx context.Context) ([]Replica, error)
	// Load writes the wish and does not wait for the replica.
	Load(ctx context.Context, r LoadRequest) (LoadResult, error)
	Unload(ctx context.Context, r UnloadRequest) (UnloadResult, error)
	// RemoveModel ends the catalog entry; weights stay on disk.
	RemoveModel(ctx context.Context, r RemoveModelRequest) (RemoveModelResult, error)
	// Pull returns when the weights are verified and the entry is written, or
	// when ctx ends. It may call progress from any goroutine, but not after it
	// returned.
	Pull(ctx context.Context, r PullRequest, progress func(Progress)) (Model, error)
}

// EngineAdmin shows the mesh's engines and installs one on this node.
type EngineAdmin interface {
	Engines(ctx context.Context) ([]Engine, error)
	// InstallEngine is bound as Pull is.
	InstallEngine(ctx context.Context, r InstallRequest, progress func(Progress)) (Engine, error)
}

// KeyAdmin shows and changes API keys.
type KeyAdmin interface {
	Keys(ctx context.Context) ([]Key, error)
	NewKey(ctx context.Context, r KeyRequest) (KeyResult, error)
	// FirstKey gives the key of the first start once, and an *Error of kind
	// Conflict ever after.
	FirstKey(ctx context.Context) (KeyResult, error)
	RevokeKey(ctx context.Context, idOrName string) error
}

// Session is a browser that redeemed a link. It has the fields of
// catalog.Session in the same order, so that one converts to the other.
type Session struct {
	ID      string // hex SHA-256 of the cookie's value; the value itself is stored nowhere
	Created int64  // unix seconds
	Expires int64  // unix seconds; moves with use, never past Created + 7 days
	Creator string // name of the node that made it
}

// Sessions keeps sessions where every node of the mesh finds them.
type Sessions interface {
	// PutSession creates the session or replaces the one with the same ID.
	PutSession(s Session) error
	// Session says false for an ID that is unknown or deleted. It need not
	// look at Expires.
	Session(id string) (Session, bool, error)
	// DeleteSession is no error for an unknown ID.
	DeleteSession(id string) error
}
