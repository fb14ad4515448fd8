package mesh

import (
	"context"
	"strings"
	"testing"
)

// TestBoxesWithoutACommonVersionSaySo: both of them, wherever a person looks, and no longer once one was upgraded.
func TestBoxesWithoutACommonVersionSaySo(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "old"), newBox(t, "new")
	b.join(a)
	allLive(t, a, b)
	b.kill()
	b.cfg.speaks = versions{2, 4}
	b.start()
	for _, c := range []struct {
		at, of    *box
		text, fix string
	}{
		{a, b, "new speaks versions 2 to 4 of the mesh's protocol and this box version 1:", "on this box"},
		{b, a, "old speaks version 1 of the mesh's protocol and this box versions 2 to 4:", "on old"},
	} {
		eventually(t, c.at.cfg.Name+" says so", func() bool {
			told := alarmText(c.at, AlarmVersion)
			return strings.Contains(told, c.text) && strings.Contains(told, "install the newer llmgw "+c.fix)
		})
		for _, n := range c.at.mesh.Nodes() {
			if n.ID == c.of.id() && !strings.HasPrefix(n.Mismatch, c.text) {
				t.Errorf("%s lists it as %q", c.at.cfg.Name, n.Mismatch)
			}
		}
		for _, d := range c.at.mesh.Diagnose(context.Background()) {
			if d.ID == c.of.id() && resultOf(d.Out, CheckVersion) != CheckFailed {
				t.Errorf("%s finds %+v", c.at.cfg.Name, d.Out)
			}
		}
		if hasAlarm(c.at, AlarmMisbehaving) {
			t.Errorf("%s blames it: %s", c.at.cfg.Name, alarmText(c.at, AlarmMisbehaving))
		}
	}
	a.kill()
	a.cfg.speaks = versions{1, 2}
	a.start()
	allLive(t, a, b)
	for _, x := range []*box{a, b} {
		if hasAlarm(x, AlarmVersion) || x.mesh.Nodes()[1].Mismatch != "" {
			t.Errorf("%s still says %s", x.cfg.Name, alarmText(x, AlarmVersion))
		}
	}
}
