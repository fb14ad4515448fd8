package lab

import (
	"testing"
	"time"

	"llmgw/ui"
)

// TestBoxesWithOneSecretFindEachOther: nothing is typed but the secret's file.
func TestBoxesWithOneSecretFindEachOther(t *testing.T) {
	s := newScene(t)
	secret := s.File("secret", s.a.CLI("secret", "new")+"\n", 0o600)
	for _, b := range []*Box{s.a, s.b} {
		b.Args = []string{"--mesh-secret-file", secret}
		b.Launch()
	}
	began := time.Now()
	s.a.AwaitAPI()
	s.b.AwaitAPI()
	s.a.Sees(s.b, 30*time.Second, ui.NodeLive)
	s.b.Sees(s.a, 30*time.Second, ui.NodeLive)
	t.Logf("two boxes were one mesh after %v", time.Since(began).Round(time.Millisecond))
	s.serveSmolLM2()
	key := s.key()
	s.checkPython(t, key)
	s.checkCurl(t, key)
	s.checkOnlyBServes(t)
}

// TestAnotherSecretIsAnotherMesh: a box with another secret is seen, listed and
// not let in.
func TestAnotherSecretIsAnotherMesh(t *testing.T) {
	s := newScene(t)
	for _, b := range []*Box{s.a, s.b} {
		secret := s.File("secret-"+b.Name, s.a.CLI("secret", "new"), 0o600)
		b.Args = []string{"--mesh-secret-file", secret}
		b.Start()
	}
	Eventually(t, 30*time.Second, "a lists b as seen", func() (bool, string) {
		list := JSON[ui.NodeList](s.a, "nodes")
		for _, seen := range list.Seen {
			if seen.Name == "b" && seen.Reason != "" {
				return true, ""
			}
		}
		return false, s.a.CLI("nodes")
	})
	if n := len(s.a.Nodes()); n != 1 {
		t.Errorf("a counts %d members", n)
	}
}

// TestWithoutMDNSAPeerAddressIsEnough: what multicast does not reach, --peer does.
func TestWithoutMDNSAPeerAddressIsEnough(t *testing.T) {
	s := newScene(t)
	secret := s.File("secret", s.a.CLI("secret", "new"), 0o600)
	s.a.Args = []string{"--mesh-secret-file", secret, "--no-mdns"}
	s.b.Args = []string{"--mesh-secret-file", secret, "--no-mdns", "--peer", s.a.MeshAddr()}
	s.a.Start()
	s.b.Start()
	s.a.Sees(s.b, 20*time.Second, ui.NodeLive)
}

// TestShortSecretIsRefused: a secret that can be guessed would open the mesh.
func TestShortSecretIsRefused(t *testing.T) {
	l := New(t)
	b := l.Box("b")
	r := b.Try("up", "--mesh-secret-file", l.File("secret", "hunter2\n", 0o600))
	if r.Code == 0 || r.Stderr == "" {
		t.Errorf("want a refusal:\n%s", r)
	}
}
