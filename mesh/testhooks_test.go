package mesh

import (
	"io"

	"github.com/libp2p/go-libp2p/core/peer"
)

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
	joined, _, _ := g.topic.now()
	if joined == nil {
		return nil
	}
	return joined.ListPeers()
}

// oneByOne reads single bytes, then the end.
type oneByOne struct{ data []byte }

func (r *oneByOne) Read(b []byte) (int, error) {
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	b[0] = r.data[0]
	r.data = r.data[1:]
	return 1, nil
}
