package ui

import "context"

// SettingAdmin shows and changes the settings of the mesh.
type SettingAdmin interface {
	MeshSettings(ctx context.Context) ([]MeshSetting, error)
	// SetSetting is in force on the answering node when it returns, unless the
	// setting wants a restart.
	SetSetting(ctx context.Context, r SettingRequest) (SettingResult, error)
}

// MeshSetting is a setting of the whole mesh and what the answering node makes
// of it: its own flag, environment or file has precedence.
type MeshSetting struct {
	Name    string       `json:"name"`
	Kind    string       `json:"kind"`    // boolean, choice, duration, addresses (with commas)
	Choices List[string] `json:"choices"` // of a choice
	Help    string       `json:"help"`
	Restart bool         `json:"restart"` // a node takes it when its daemon starts
	Set     bool         `json:"set"`     // for the mesh
	Value   string       `json:"value"`   // of the mesh
	Here    string       `json:"here"`    // in force on the answering node
	Origin  string       `json:"origin"`  // of Here
	Pending string       `json:"pending"` // what a restart of the answering node brings; empty: nothing new
}

// MeshSettingList is the answer of GET /admin/v1/settings.
type MeshSettingList struct {
	Schema
	Settings List[MeshSetting] `json:"settings"`
}

// SettingRequest sets a setting of the mesh; a nil value unsets it.
type SettingRequest struct {
	Name  string  `json:"name"`
	Value *string `json:"value"`
}

// SettingResult is the setting as it is after a change.
type SettingResult struct {
	Schema
	Setting MeshSetting  `json:"setting"`
	Notes   List[string] `json:"notes"` // such as that a restart is needed
}

func (u *UI) settingRoutes() []route {
	b := u.cfg.Backend
	return []route{
		{"GET", "settings", session, read(listed(b.MeshSettings, func(l List[MeshSetting]) MeshSettingList { return MeshSettingList{Settings: l} }))},
		{"POST", "settings", socketOnly, accept(b.SetSetting)},
	}
}

// MeshSettings lists the settings of the mesh.
func (c *Client) MeshSettings(ctx context.Context) (MeshSettingList, error) {
	return get[MeshSettingList](ctx, c, "settings")
}

// SetSetting sets or unsets a setting of the mesh.
func (c *Client) SetSetting(ctx context.Context, r SettingRequest) (SettingResult, error) {
	return post[SettingResult](ctx, c, "settings", r)
}
