package lab

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestPicturesAreLinksAtAnyBox: the engine is on b, a was asked, and the link works at
// both, for the key that asked alone, also after the daemon that keeps it was started anew.
func TestPicturesAreLinksAtAnyBox(t *testing.T) {
	t.Parallel()
	s := joinedScene(t)
	s.serveSim("painter", Sim{})
	key := s.key()
	got, err := s.atA(key).Ask(seconds(t, 20), http.MethodPost, "/v1/images/generations", map[string]any{
		"model": "painter", "prompt": "a cat", "size": "1024x1024", "response_format": "url",
	})
	if err != nil || got.Status != 200 {
		t.Fatal(got, err)
	}
	var answer struct{ Data []struct{ URL string } }
	if err := json.Unmarshal([]byte(got.Body), &answer); err != nil || len(answer.Data) != 1 {
		t.Fatal(got, err)
	}
	path, ok := strings.CutPrefix(answer.Data[0].URL, s.a.URL())
	if !ok {
		t.Fatalf("a link to %s is not to the box that was asked", answer.Data[0].URL)
	}
	picture := s.fetched(t, s.atA(key), path)
	if !strings.HasPrefix(picture, "\x89PNG") || s.fetched(t, s.atB(key), path) != picture {
		t.Errorf("b has other bytes than a, which has %d", len(picture))
	}
	other := s.a.CLI("keys", "new", "other")
	Eventually(t, 10*time.Second, "b knows the other key, and has nothing for it", func() (bool, string) {
		got, err := s.atB(other).Ask(seconds(t, 5), http.MethodGet, path, nil)
		return err == nil && got.Status == 404, got.String()
	})
	s.a.Stop()
	s.a.Launch()
	s.a.AwaitAPI()
	if s.fetched(t, s.atA(key), path) != picture {
		t.Error("the file did not outlive its daemon")
	}
	Eventually(t, 20*time.Second, "b reaches a again", func() (bool, string) {
		got, err := s.atB(key).Ask(seconds(t, 5), http.MethodGet, path, nil)
		return err == nil && got.Body == picture, ""
	})
}

func (s scene) fetched(t *testing.T, at *API, path string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := at.Ask(ctx, http.MethodGet, path, nil)
	if err != nil || got.Status != 200 {
		t.Fatalf("%s: %v, %v", path, got, err)
	}
	return got.Body
}
