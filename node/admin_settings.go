package node

import (
	"context"
	"errors"
	"fmt"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// Config lists the settings of this node, as in force.
func (a admin) Config(context.Context) ([]ui.Setting, error) { return a.settings.list(), nil }

// MeshSettings lists the settings of the mesh and what this node makes of them.
func (a admin) MeshSettings(context.Context) ([]ui.MeshSetting, error) {
	said, err := a.catalog.Settings()
	if err != nil {
		return nil, err
	}
	here := map[string]ui.Setting{}
	for _, s := range a.settings.list() {
		here[s.Name] = s
	}
	var out []ui.MeshSetting
	for _, s := range catalog.MeshSettings() {
		value, set := said[s.Key]
		own := here[s.Key]
		out = append(out, ui.MeshSetting{
			Name: s.Key, Kind: string(s.Kind), Choices: s.Choices, Help: s.Help, Restart: s.Restart, Set: set, Value: value,
			Here: own.Value, Origin: own.Origin, Pending: own.Pending,
		})
	}
	return out, nil
}

// SetSetting sets or unsets one setting of the mesh.
func (a admin) SetSetting(ctx context.Context, r ui.SettingRequest) (ui.SettingResult, error) {
	s, ok := catalog.MeshSetting(r.Name)
	if !ok {
		return ui.SettingResult{}, unknownSetting(r.Name)
	}
	value := ""
	if r.Value != nil {
		value = *r.Value
	}
	if err := a.catalog.UpdateSettings(keepOrDrop(r.Name, value, r.Value != nil)); err != nil {
		return ui.SettingResult{}, explainSetting(err)
	}
	if err := errors.Join(a.followSettings(), a.offer(ctx)); err != nil {
		return ui.SettingResult{}, err
	}
	return a.settingNow(s)
}

func (a admin) settingNow(s catalog.Setting) (ui.SettingResult, error) {
	all, err := a.MeshSettings(context.Background())
	if err != nil {
		return ui.SettingResult{}, err
	}
	var out ui.SettingResult
	for _, m := range all {
		if m.Name == s.Key {
			out.Setting = m
		}
	}
	if s.Restart {
		out.Notes = append(out.Notes, "each node takes it when its daemon starts: llmgw restart on each box")
	}
	if origin := out.Setting.Origin; origin != originMesh && origin != originDefault {
		out.Notes = append(out.Notes, fmt.Sprintf("%s does not follow it: its own configuration says %s (%s)", a.cfg.Name, out.Setting.Here, origin))
	}
	return out, nil
}

func unknownSetting(name string) error {
	return &ui.Error{Kind: ui.NotFound, Message: fmt.Sprintf("the mesh has no setting %q", name), Hint: "llmgw settings lists them"}
}

func explainSetting(err error) error {
	if refused := (*catalog.SettingError)(nil); errors.As(err, &refused) {
		return &ui.Error{Kind: ui.BadInput, Code: "bad_setting", Message: refused.Error(), Hint: "llmgw settings lists them", Err: err}
	}
	return err
}
