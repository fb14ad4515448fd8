package lab

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"llmgw/ui"
)

// startBoxes adds running boxes to a lab, each a mesh of its own.
func (l *Lab) startBoxes(names ...string) []*Box {
	l.tb.Helper()
	var out []*Box
	for _, name := range names {
		out = append(out, l.Box(name))
		out[len(out)-1].Launch()
	}
	for _, b := range out {
		b.AwaitAPI()
	}
	return out
}

// joinedBoxes adds running boxes that the first one let into its mesh.
func (l *Lab) joinedBoxes(names ...string) []*Box {
	l.tb.Helper()
	boxes := l.startBoxes(names...)
	for _, b := range boxes[1:] {
		b.Join(boxes[0])
	}
	return boxes
}

// TestBoxesJoinThroughDifferentMembers: any member admits, and each box ends up
// with all the others.
func TestBoxesJoinThroughDifferentMembers(t *testing.T) {
	t.Parallel()
	l := New(t)
	boxes := l.startBoxes("a", "b", "c", "d", "e")
	for i, b := range boxes[1:] {
		b.Join(boxes[i])
	}
	for _, b := range boxes {
		for _, other := range boxes {
			if other != b {
				b.Sees(other, 15*time.Second, ui.NodeLive)
			}
		}
	}
	key := boxes[4].CLI("keys", "new", "phone")
	for _, b := range boxes {
		answers(t, boxes[0].API(b, key), http.StatusOK)
	}
}

// TestTokenOfSeveralUses lets in as many boxes as it says and no more.
func TestTokenOfSeveralUses(t *testing.T) {
	t.Parallel()
	l := New(t)
	boxes := l.startBoxes("a", "b", "c", "d")
	token := boxes[0].CLI("token", "new", "--uses", "2")
	boxes[1].CLI("join", token)
	boxes[2].CLI("join", token)
	r := boxes[3].Try("join", token)
	if r.Code == 0 || !strings.Contains(r.Stderr, "used") {
		t.Errorf("a third use of a token for two:\n%s", r)
	}
	tokens := JSON[ui.TokenList](boxes[0], "token", "ls").Tokens
	if len(tokens) != 1 || tokens[0].Used != 2 || tokens[0].Uses != 2 {
		t.Errorf("the list of tokens: %+v", tokens)
	}
}

// TestTokenOfABoxThatMovedOn: its maker left the mesh that the token is for.
func TestTokenOfABoxThatMovedOn(t *testing.T) {
	t.Parallel()
	l := New(t)
	boxes := l.startBoxes("a", "b", "c")
	foreign := boxes[1].CLI("token", "new")
	boxes[1].Join(boxes[0])
	r := boxes[2].Try("join", foreign)
	if r.Code == 0 || !strings.Contains(r.Stderr, "mesh") {
		t.Errorf("want a refusal that tells of another mesh:\n%s", r)
	}
	t.Log(r.Stderr)
	boxes[2].Join(boxes[0]) // and nothing is spoilt
}

// TestStrangerReadsNothing lists what a box on the link can try that is no
// member and has no key.
func TestStrangerReadsNothing(t *testing.T) {
	t.Parallel()
	s := joinedScene(t)
	s.serveSim("secretmodel", Sim{Tokens: 1})
	s.a.CLI("label", "a", "rack=secretrack")
	key := s.key()
	stranger := s.Box("stranger")
	stranger.Args = []string{"--peer", s.a.MeshAddr(), "--peer", s.b.MeshAddr()}
	stranger.Start()
	secrets := []string{"secretmodel", "secretrack", key}
	with := map[string]string{"no key": "", "a made-up key": "llmgw-sk-aaaaaaaaaaaaaaaaaaaaaaaa", "its own key": stranger.CLI("keys", "new", "mine")}
	for _, path := range strangersPaths {
		seen := map[int]int{}
		for _, of := range []*Box{s.a, s.b} {
			for what, key := range with {
				got, err := stranger.API(of, key).Ask(seconds(t, 10), path.method, path.path, path.body)
				if err != nil || !slices.Contains(path.statuses, got.Status) || containsAny(got.Body, secrets) {
					t.Errorf("%s %s of %s with %s: %v, %v", path.method, path.path, of.Name, what, got, err)
				}
				seen[got.Status]++
			}
		}
		t.Logf("%-4s %-26s answered with %v", path.method, path.path, seen)
	}
	s.checkStrangersDaemon(t, stranger, secrets)
}

// strangersPaths are tried with no key, with a made-up one and with one of the
// stranger's own mesh.
var strangersPaths = []struct {
	method, path string
	body         any
	statuses     []int
}{
	{"GET", "/healthz", nil, []int{200}},
	{"GET", "/readyz", nil, []int{200, 503}},
	{"GET", "/", nil, []int{200}},
	{"GET", "/v1/models", nil, []int{401}},
	{"POST", "/v1/chat/completions", Chat("secretmodel", "Hi", false, nil), []int{401}},
	{"POST", "/v1/completions", `{"model":"secretmodel","prompt":"Hi"}`, []int{401}},
	{"POST", "/v1/embeddings", `{"model":"secretmodel","input":"Hi"}`, []int{401}},
	{"GET", "/metrics", nil, []int{401, 403}},
	{"GET", "/admin/v1/status", nil, []int{401}},
	{"GET", "/admin/v1/overview", nil, []int{401}},
	{"GET", "/admin/v1/nodes", nil, []int{401}},
	{"GET", "/admin/v1/keys", nil, []int{401}},
	{"GET", "/admin/v1/tokens", nil, []int{401}},
	{"GET", "/admin/v1/config", nil, []int{401}},
	{"POST", "/admin/v1/tokens", "{}", []int{401, 403}},
	{"POST", "/admin/v1/keys", `{"name":"x"}`, []int{401, 403}},
	{"POST", "/admin/v1/keys/first", "{}", []int{401, 403}},
	{"POST", "/admin/v1/ui-link", "{}", []int{401, 403}},
	{"POST", "/admin/v1/session", `{"code":"0000"}`, []int{400, 401, 403}},
}

// checkStrangersDaemon: what a daemon learns that dials members all the time.
func (s scene) checkStrangersDaemon(t *testing.T, stranger *Box, secrets []string) {
	t.Helper()
	Always(t, 3*time.Second, "the stranger's own daemon shows nothing of the mesh", func() (bool, string) {
		shown := fmt.Sprint(stranger.CLI("nodes", "--json"), stranger.CLI("models", "--json"), stranger.CLI("ps", "--json"), stranger.CLI("keys", "ls", "--json"), stranger.CLI("token", "ls", "--json"))
		return !containsAny(shown, secrets) && len(stranger.Nodes()) == 1, shown
	})
	if nodes := s.a.Nodes(); len(nodes) != 2 {
		t.Errorf("a counts %v", nodes)
	}
	if raw := stranger.Logs(); containsAny(raw, secrets) {
		t.Errorf("the stranger's log tells of the mesh:\n%s", raw)
	}
}

func containsAny(text string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// TestTwoMeshesOnOneLinkStayApart: they see each other by mDNS, say so, and
// share nothing, though their models have one name.
func TestTwoMeshesOnOneLinkStayApart(t *testing.T) {
	t.Parallel()
	l := New(t)
	boxes := l.startBoxes("a", "b", "c", "d")
	var keys []string
	for _, first := range []int{0, 2} {
		boxes[first+1].Join(boxes[first])
		boxes[first].PullSim("sim", Sim{Tokens: first + 1})
		keys = append(keys, boxes[first].CLI("keys", "new", "phone"))
	}
	Eventually(t, 30*time.Second, "each box lists both boxes of the other mesh, with a reason", func() (bool, string) {
		for i, b := range boxes {
			for _, other := range boxes[(i/2*2+2)%4 : (i/2*2+2)%4+2] {
				seen := JSON[ui.NodeList](b, "nodes").Seen
				if !slices.ContainsFunc(seen, func(s ui.Sighting) bool { return s.Name == other.Name && s.Reason != "" }) {
					return false, b.CLI("nodes")
				}
			}
		}
		return true, ""
	})
	t.Log(boxes[0].CLI("nodes"))
	Always(t, 3*time.Second, "each mesh has its two boxes and its own model", func() (bool, string) {
		for _, b := range boxes {
			if models := JSON[ui.ModelList](b, "models").Models; len(b.Nodes()) != 2 || len(models) != 1 {
				return false, fmt.Sprint(b.Name, b.Nodes(), models)
			}
		}
		return true, ""
	})
	for i, b := range boxes {
		answers(t, boxes[0].API(b, keys[i/2]), http.StatusOK)
		answers(t, boxes[0].API(b, keys[1-i/2]), http.StatusUnauthorized)
	}
}
