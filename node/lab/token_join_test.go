package lab

import (
	"strings"
	"testing"
	"time"

	"llmgw/ui"
)

func TestTokenJoinedBoxesServeOneRealModel(t *testing.T) {
	s := joinedScene(t)
	s.serveSmolLM2()
	key := s.key()
	s.checkPython(t, key)
	s.checkCurl(t, key)
	s.checkOnlyBServes(t)
}

// TestJoinDropsTheBoxesOwnFirstKey: the key that a mesh of one made at its
// start goes with that mesh, and the join says so.
func TestJoinDropsTheBoxesOwnFirstKey(t *testing.T) {
	s := newScene(t)
	s.a.Start()
	s.b.Start()
	own := s.b.CLI("keys", "first")
	if got, err := s.atB(own).Ask(seconds(t, 5), "GET", "/v1/models", nil); err != nil || got.Status != 200 {
		t.Fatalf("the first key before the join: %v, %v", got, err)
	}
	said := s.b.CLI("join", s.a.CLI("token", "new"))
	if !strings.Contains(said, "first API key") {
		t.Errorf("join does not tell that the first key is gone: %s", said)
	}
	Eventually(t, 5*time.Second, "the old key is refused", func() (bool, string) {
		got, err := s.atB(own).Ask(seconds(t, 5), "GET", "/v1/models", nil)
		return err == nil && got.Status == 401, got.String()
	})
	of := s.a.CLI("keys", "first")
	Eventually(t, 5*time.Second, "the mesh's key works on b", func() (bool, string) {
		got, err := s.atB(of).Ask(seconds(t, 5), "GET", "/v1/models", nil)
		return err == nil && got.Status == 200, got.String()
	})
}

func TestTokenByStandardInput(t *testing.T) {
	s := newScene(t)
	s.a.Start()
	s.b.Start()
	if r := s.b.TryInput(s.a.CLI("token", "new")+"\n", "join", "--token-file", "-"); r.Code != 0 {
		t.Fatal(r)
	}
	s.a.Sees(s.b, 10*time.Second, ui.NodeLive)
}

// TestRefusedJoinsSayWhy: each refusal names its reason, leaves the box in its
// own mesh and lets the right token in afterwards.
func TestRefusedJoinsSayWhy(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	c := s.Box("c")
	for _, b := range []*Box{s.a, s.b, c} {
		b.Start()
	}
	used := s.a.CLI("token", "new")
	c.CLI("join", used)
	short := s.a.CLI("token", "new", "--ttl", "1s")
	good := s.a.CLI("token", "new")
	flip := map[byte]string{'a': "b"}
	last := good[len(good)-1]
	wrong, ok := flip[last]
	if !ok {
		wrong = "a"
	}
	time.Sleep(1500 * time.Millisecond) // the token's own life, which no event marks
	for name, tc := range map[string]struct{ token, says string }{
		"used":     {used, "used"},
		"expired":  {short, "expired"},
		"mistyped": {good[:len(good)-1] + wrong, "mistyped"},
		"cut off":  {good[:len(good)/2], "mistyped"},
		"no token": {"hello", "token"},
	} {
		r := s.b.Try("join", tc.token)
		if r.Code == 0 || !strings.Contains(strings.ToLower(r.Stderr), tc.says) {
			t.Errorf("%s: want a refusal that says %q:\n%s", name, tc.says, r)
		}
	}
	s.a.Cut() // a token names all admins of its mesh, so both are away
	c.Cut()
	r := s.b.Try("join", good)
	if r.Code == 0 || !strings.Contains(r.Stderr, s.a.IP().String()) || !strings.Contains(r.Stderr, c.IP().String()) {
		t.Errorf("unreachable: want each address and why:\n%s", r)
	}
	if r.Took > 40*time.Second {
		t.Errorf("unreachable took %v to say", r.Took)
	}
	s.a.Heal()
	c.Heal()
	if n := len(s.b.Nodes()); n != 1 {
		t.Errorf("b knows %d nodes after refused joins", n)
	}
	Eventually(t, 20*time.Second, "the right token lets b in", func() (bool, string) {
		r := s.b.Try("join", good)
		return r.Code == 0, r.String()
	})
	s.b.Sees(c, 15*time.Second, ui.NodeLive)
}

// TestJoinReplacesOnlyAProvisionalMesh: a box with something of its own is not
// swallowed without --replace.
func TestJoinReplacesOnlyAProvisionalMesh(t *testing.T) {
	s := newScene(t)
	s.a.Start()
	s.b.Start()
	s.b.PullSim("own", Sim{Tokens: 1})
	token := s.a.CLI("token", "new")
	r := s.b.Try("join", token)
	if r.Code == 0 || !strings.Contains(r.Stderr, "--replace") {
		t.Fatalf("a mesh with a model of its own was replaced, or nothing says how to:\n%s", r)
	}
	if len(JSON[ui.ModelList](s.b, "models").Models) != 1 {
		t.Error("the refused join took the box's own model")
	}
	s.b.CLI("join", "--replace", token)
	s.a.Sees(s.b, 10*time.Second, ui.NodeLive)
	if got := JSON[ui.ModelList](s.b, "models").Models; len(got) != 0 {
		t.Errorf("models of the old mesh are still there: %+v", got)
	}
}

func TestLeaveMakesAMeshOfOne(t *testing.T) {
	s := joinedScene(t)
	s.b.CLI("leave")
	Eventually(t, 15*time.Second, "a no longer counts b", func() (bool, string) {
		st := JSON[ui.Status](s.a, "status")
		return st.Mesh.Members == 1, s.a.CLI("nodes")
	})
	Eventually(t, 15*time.Second, "b is a mesh of one", func() (bool, string) {
		return len(s.b.Nodes()) == 1, s.b.CLI("nodes")
	})
	s.b.Join(s.a)
}
