package lab

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"llmgw/ui"
)

// knows waits until a box counts exactly these members.
func (b *Box) knows(within time.Duration, names ...string) {
	b.tb.Helper()
	what := "box " + b.Name + " counts " + strings.Join(names, ", ")
	Eventually(b.tb, within, what, func() (bool, string) {
		nodes := b.Nodes()
		for _, n := range names {
			if _, ok := nodes[n]; !ok {
				return false, b.CLI("nodes")
			}
		}
		return len(nodes) == len(names), b.CLI("nodes")
	})
}

// says waits until a box's own status tells of something.
func (b *Box) says(within time.Duration, words ...string) {
	b.tb.Helper()
	Eventually(b.tb, within, "the status of box "+b.Name+" says "+strings.Join(words, ", "), func() (bool, string) {
		said := b.CLI("status")
		for _, w := range words {
			if !strings.Contains(said, w) {
				return false, said
			}
		}
		return true, ""
	})
}

// TestRevokedTokenLetsNobodyIn: also when it is revoked on another box than the
// one that made it.
func TestRevokedTokenLetsNobodyIn(t *testing.T) {
	t.Parallel()
	l := New(t)
	boxes := l.startBoxes("a", "b", "c")
	a, b, c := boxes[0], boxes[1], boxes[2]
	b.Join(a)
	token := a.CLI("token", "new")
	var id string
	Eventually(t, 10*time.Second, "b knows the token", func() (bool, string) {
		for _, tok := range JSON[ui.TokenList](b, "token", "ls").Tokens {
			if tok.Used < tok.Uses {
				id = tok.ID
			}
		}
		return id != "", b.CLI("token", "ls")
	})
	b.CLI("token", "revoke", id)
	r := c.Try("join", token)
	if r.Code == 0 || !strings.Contains(r.Stderr, "revoked") || !strings.Contains(r.Stderr, "llmgw token new") {
		t.Errorf("want a refusal that says revoked and what to type:\n%s", r)
	}
	if n := len(c.Nodes()); n != 1 {
		t.Errorf("c counts %d members after a refused join", n)
	}
	c.Join(b)
}

// TestRemovedBoxIsRefusedByAll: it was off while it was removed, so it comes back
// with its old state, is refused by each member, and says so itself.
func TestRemovedBoxIsRefusedByAll(t *testing.T) {
	t.Parallel()
	l := New(t)
	boxes := l.startBoxes("a", "b", "c")
	a, b, c := boxes[0], boxes[1], boxes[2]
	b.Join(a)
	c.Join(b)
	a.Sees(c, 20*time.Second, ui.NodeLive)
	had := a.CLI("keys", "new", "before")
	answers(t, a.API(c, had), http.StatusOK)
	c.Stop()
	a.CLI("nodes", "remove", "c", "--reason", "sold to a stranger")
	a.knows(10*time.Second, "a", "b")
	b.knows(10*time.Second, "a", "b")
	later := a.CLI("keys", "new", "later")
	c.Start()
	c.says(30*time.Second, "removed", "sold to a stranger", "readmit")
	t.Log(c.CLI("status"))
	answers(t, a.API(c, had), http.StatusServiceUnavailable)
	Always(t, 5*time.Second, "nobody lets it in, and it learns nothing more", func() (bool, string) {
		got, err := a.API(c, later).Ask(seconds(t, 5), http.MethodGet, "/v1/models", nil)
		return len(a.Nodes()) == 2 && len(b.Nodes()) == 2 && (err != nil || got.unknownKey()),
			a.CLI("nodes") + "\n" + b.CLI("nodes") + "\n" + got.String()
	})
	r := c.Try("join", a.CLI("token", "new"))
	if r.Code == 0 {
		t.Errorf("a banned identity joined by a token:\n%s", r)
	}
	a.CLI("nodes", "readmit", "c")
	Eventually(t, 30*time.Second, "readmitted, a new token lets it in", func() (bool, string) {
		r := c.Try("join", "--replace", a.CLI("token", "new"))
		return r.Code == 0, r.String()
	})
	b.Sees(c, 20*time.Second, ui.NodeLive)
}

// TestMeshGoesOnWithoutItsFounder: whoever came first is nothing special.
func TestMeshGoesOnWithoutItsFounder(t *testing.T) {
	t.Parallel()
	l := New(t)
	boxes := l.startBoxes("founder", "b", "c", "d")
	founder, b, c, d := boxes[0], boxes[1], boxes[2], boxes[3]
	b.Join(founder)
	c.Join(founder)
	key := founder.CLI("keys", "new", "phone")
	c.Sees(b, 20*time.Second, ui.NodeLive)
	b.CLI("nodes", "remove", "founder", "--reason", "worn out")
	founder.says(20*time.Second, "removed", "worn out")
	b.knows(10*time.Second, "b", "c")
	c.knows(10*time.Second, "b", "c")
	for _, at := range []*Box{b, c} {
		answers(t, d.API(at, key), http.StatusOK)
	}
	d.Join(c) // whom the founder had let in, and who now stands on b's word
	b.Sees(d, 20*time.Second, ui.NodeLive)
	answers(t, b.API(d, key), http.StatusOK)
	b.Stop()
	b.Start()
	b.Sees(d, 20*time.Second, ui.NodeLive)
	if r := b.Try("nodes", "remove", "c"); r.Code != 0 {
		t.Error(r)
	}
	if r := d.Try("nodes", "remove", "b"); r.Code != 0 {
		t.Error(r)
	}
	if r := d.Try("nodes", "demote", "d"); r.Code == 0 {
		t.Errorf("the last admin was demoted:\n%s", r)
	}
}
