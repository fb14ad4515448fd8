package mesh

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// maxVouchers is how many others probe a suspect before it is called dead.
const maxVouchers = 3

// askOthers has up to three live members look at a suspect. It tells whether one of
// them reaches it: then the path between the two is cut, not the peer dead.
func (m *Mesh) askOthers(ctx context.Context, suspect peer.ID) bool {
	live := slices.DeleteFunc(m.links.live(), func(p peer.ID) bool { return p == suspect })
	rand.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
	live = live[:min(len(live), maxVouchers)]
	ctx, cancel := context.WithTimeout(ctx, 2*probeWait)
	defer cancel()
	answers := make(chan bool, len(live))
	for _, p := range live {
		go func() { answers <- m.askVoucher(ctx, p, suspect) == nil }()
	}
	for range live {
		if <-answers {
			return true
		}
	}
	return false
}

// askVoucher returns nil when p reaches the suspect.
func (m *Mesh) askVoucher(ctx context.Context, p, suspect peer.ID) error {
	s, err := m.open(ctx, p, protocolHeartbeat)
	if err != nil {
		return err
	}
	defer s.Reset()
	deadline, _ := ctx.Deadline()
	if err := s.SetDeadline(deadline); err != nil {
		return fmt.Errorf("ask %s about %s: %w", p, suspect, err)
	}
	if err := writeFrame(s, beat{Kind: beatAsk, About: suspect.String()}); err != nil {
		return fmt.Errorf("ask %s about %s: %w", p, suspect, err)
	}
	var answer beat
	if err := readFrame(s, maxPresence, &answer); err != nil {
		return fmt.Errorf("ask %s about %s: %w", p, suspect, err)
	}
	if answer.Kind != beatAnswer {
		return fmt.Errorf("ask %s about %s: %w", p, suspect, errUnreached)
	}
	return nil
}

// answerAsk says whether this box reaches a member: by what it heard from it a
// moment ago, else by a probe of its own.
func (m *Mesh) answerAsk(s *stream, about string) {
	answer := beat{Kind: beatUnreached}
	p, err := peer.Decode(about)
	if l, ok := m.links.get(p); err == nil && ok {
		ctx, cancel := context.WithTimeout(m.life, probeWait)
		if l.heardWithin(m.now(), suspectAfter/2) || m.probe(ctx, p) == nil {
			answer.Kind = beatAnswer
		}
		cancel()
	}
	if err := s.SetWriteDeadline(time.Now().Add(probeWait)); err != nil || writeFrame(s, answer) != nil {
		s.Reset()
		return
	}
	s.Close()
}

func (l *link) heardWithin(now time.Time, d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.health.current() == StateLive && now.Sub(l.health.heardAt) < d
}
