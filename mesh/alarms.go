package mesh

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// AlarmKind says what is wrong. A value never changes its meaning.
type AlarmKind string

// Kinds of alarms.
const (
	AlarmClone       AlarmKind = "clone"        // one identity runs twice
	AlarmClock       AlarmKind = "clock"        // a member's clock is more than 5 min off
	AlarmRowsAside   AlarmKind = "rows_aside"   // rows from the far future wait
	AlarmGossipLoss  AlarmKind = "gossip_loss"  // pubsub dropped messages lately
	AlarmMisbehaving AlarmKind = "misbehaving"  // a member sends what no llmgw sends, or too much
	AlarmTwoMeshes   AlarmKind = "two_meshes"   // boxes of another mesh are on this link
	AlarmRuling      AlarmKind = "void_ruling"  // an admin's ban or demotion does not stand
	AlarmDigest      AlarmKind = "digest"       // two stores differed although they had pulled from each other
	AlarmToken       AlarmKind = "token_reused" // a token was used more often than it allows
	AlarmAway        AlarmKind = "away"         // this box may have missed deletions
	AlarmRolledBack  AlarmKind = "rolled_back"  // this box's disk was set back, or copied
	AlarmVersion     AlarmKind = "version"      // a member speaks no version of the protocol that this box does
)

// Alarm is something that a person should look at.
type Alarm struct {
	Kind AlarmKind
	Text string
	Fix  string // what to do
}

// alarmFor is how long an event is shown after it happened last.
const alarmFor = 10 * time.Minute

// events are alarms about what happened, as opposed to what is. Its zero value is
// ready.
type events struct {
	mu   sync.Mutex
	last map[eventKey]happening
}

type eventKey struct {
	kind AlarmKind
	of   string
}

type happening struct {
	alarm Alarm
	at    time.Time
	count int
}

// maxEvents bounds what others can make this box remember.
const maxEvents = 256

// note keeps an event; it tells whether it is new, and so worth a log line.
func (e *events) note(now time.Time, of string, a Alarm) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := eventKey{a.Kind, of}
	had, ok := e.last[k]
	fresh := !ok || now.Sub(had.at) > alarmFor
	if fresh {
		had.count = 0
	}
	if e.last == nil || !ok && len(e.last) >= maxEvents {
		e.last = map[eventKey]happening{}
	}
	e.last[k] = happening{alarm: a, at: now, count: had.count + 1}
	return fresh
}

func (e *events) list(now time.Time) []Alarm {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []Alarm
	for _, ev := range e.last {
		if now.Sub(ev.at) > alarmFor {
			continue
		}
		a := ev.alarm
		if ev.count > 1 {
			a.Text += fmt.Sprintf(" (%d times)", ev.count)
		}
		out = append(out, a)
	}
	return out
}

// Alarms lists what is wrong now or was in the last 10 minutes, in a fixed order.
func (m *Mesh) Alarms() []Alarm {
	now := m.now()
	out := slices.Concat(m.clones.alarms(now), m.events.list(now), m.clockAlarms(), m.asideAlarms(), m.meshAlarms(), m.rulingAlarms(), m.absence.alarms(),
		m.versionAlarms())
	slices.SortFunc(out, func(a, b Alarm) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Text, b.Text)) })
	return out
}

func (m *Mesh) clockAlarms() []Alarm {
	var out []Alarm
	for _, l := range m.links.all() {
		l.mu.Lock()
		skew := l.skew
		l.mu.Unlock()
		if skew.Abs() <= maxJoinSkew {
			continue
		}
		out = append(out, Alarm{
			Kind: AlarmClock, Text: fmt.Sprintf("the clock of %s is %s this box's", m.nameOf(l.peer.String()), skewText(skew, time.Second)),
			Fix: "set the clock of the one that is wrong, for instance by NTP",
		})
	}
	return out
}

// skewText says how one clock stands to another: "1m3s ahead of", "2s behind".
func skewText(skew, step time.Duration) string {
	switch off := skew.Round(step); {
	case off > 0:
		return off.String() + " ahead of"
	case off < 0:
		return off.Abs().String() + " behind"
	}
	return "the same as"
}

func (m *Mesh) asideAlarms() []Alarm {
	waiting, err := m.store.Aside()
	if err != nil || len(waiting) == 0 {
		return nil
	}
	return []Alarm{{
		Kind: AlarmRowsAside, Text: fmt.Sprintf("%d changes were stamped more than a day ahead of this box's clock and wait", len(waiting)),
		Fix: "check this box's clock, then those of the other boxes",
	}}
}

// meshAlarms name boxes on this link that have a mesh of their own worth keeping.
func (m *Mesh) meshAlarms() []Alarm {
	if m.Provisional() {
		return nil
	}
	v := m.view.Load()
	m.sights.mu.Lock()
	defer m.sights.mu.Unlock()
	var out []Alarm
	for _, g := range m.sights.all() {
		id, err := peer.Decode(g.Peer)
		if err != nil || !g.Settled || id == m.self || v.roster.newest[id] != nil || v.mesh.hint(id) == g.Hint {
			continue
		}
		out = append(out, Alarm{
			Kind: AlarmTwoMeshes, Text: fmt.Sprintf("box %s on this link is of another mesh", cmp.Or(cleanName(g.Name), g.Peer)),
			Fix: "nothing, when that is meant; to unite them, join its boxes here one by one with replace",
		})
	}
	return out
}

func (m *Mesh) rulingAlarms() []Alarm {
	var out []Alarm
	for _, r := range m.view.Load().roster.void {
		out = append(out, Alarm{
			Kind: AlarmRuling, Text: fmt.Sprintf("the %s of %s by %s does not stand: by an earlier ruling that box was no admin, or no admin would be left",
				r.body.Kind, m.nameOf(r.body.Peer), m.nameOf(r.body.Issuer)),
			Fix: "if it is still wanted, have an admin do it again",
		})
	}
	return out
}
