package crdt

import (
	"slices"
	"time"
)

const (
	// slewPPM is how much faster or slower than the wall clock mesh time may run, in millionths.
	slewPPM = 500
	// maxOffset is how far mesh time may be from the wall clock. Beyond, one of the clocks is wrong and nobody here
	// can tell which.
	maxOffset = 2 * time.Second
)

// MeshTime lets the nodes of a mesh agree on where minutes begin, although their clocks differ a little: wall clock plus the
// median of the differences that heartbeats show. It never goes back while the wall clock does not. It decides windows,
// nothing else. The zero MeshTime is the wall clock. It is not safe for use by several goroutines.
type MeshTime struct {
	offset time.Duration
	at     time.Time // of the last observation; zero before the first
	skewed bool
}

// MaxSlew is how much mesh time may gain or lose against the wall clock in d.
func MaxSlew(d time.Duration) time.Duration { return d * slewPPM / 1_000_000 }

// Observe takes in what the heartbeats of all live peers show: their wall clock minus the own one. now is the own one.
func (m *MeshTime) Observe(now time.Time, peers []time.Duration) {
	target := median(append([]time.Duration{0}, peers...))
	elapsed := max(now.Sub(m.at), 0)
	first := m.at.IsZero()
	m.at = now
	m.skewed = target.Abs() > maxOffset
	switch step := MaxSlew(elapsed); {
	case m.skewed:
		m.offset = 0
	case first:
		m.offset = target // no time was told yet that it could contradict
	default:
		m.offset += min(max(target-m.offset, -step), step)
	}
}

// Now returns mesh time at a wall clock time.
func (m *MeshTime) Now(wall time.Time) time.Time { return wall.Add(m.offset) }

// Skewed says that the own clock is over 2 s away from the mesh's median: mesh time is then the raw wall clock, and
// somebody should be told.
func (m *MeshTime) Skewed() bool { return m.skewed }

// median counts the own clock in as a difference of 0, so that two nodes meet half way.
func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	n := len(all)
	if n%2 == 1 {
		return all[n/2]
	}
	return all[n/2-1] + (all[n/2]-all[n/2-1])/2
}
