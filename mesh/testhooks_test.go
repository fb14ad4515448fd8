package mesh

import "github.com/libp2p/go-libp2p/core/peer"

// hold makes the puller forget what is asked of it.
func (u *puller) hold() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.busy = map[peer.ID]bool{}
	for _, l := range u.m.links.all() {
		u.busy[l.peer] = true
	}
}

func (g *gossip) topicPeers() []peer.ID {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.topic == nil {
		return nil
	}
	return g.topic.ListPeers()
}
