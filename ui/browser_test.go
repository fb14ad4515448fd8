package ui

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// linksPerBox is at least the highest link that web/tests/page.mjs opens.
const linksPerBox = 16

// pageBox is a server that the browser visits, with links that open it.
type pageBox struct {
	URL   string   `json:"url"`
	Links []string `json:"links"`
}

// TestPageInBrowser opens the page in Chromium against real servers: one with
// data, one of a fresh box, one that answers with null for every list.
func TestPageInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	needBrowser(t)
	var down atomic.Bool
	full := newFixture(t)
	empty := newFixture(t)
	empty.backend.overview = freshBox()
	boxes := map[string]pageBox{
		"full":  serveBox(t, full, unplugged(&down, full.PublicHandler())),
		"empty": serveBox(t, empty, empty.PublicHandler()),
	}
	nulls := newFixture(t)
	boxes["nulls"] = serveBox(t, nulls, answerNulls(nulls.PublicHandler()))
	runPage(t, map[string]any{
		"boxes": boxes, "control": serveControl(t, &down, full.sessions), "shots": os.Getenv("LLMGW_SCREENSHOTS"),
	})
}

func needBrowser(t *testing.T) {
	t.Helper()
	needBuiltPage(t)
	_, err := os.Stat("/usr/bin/chromium")
	need(t, err == nil, "no /usr/bin/chromium: install the package chromium")
	_, err = exec.LookPath("node")
	need(t, err == nil, "no node on PATH: install Node 20.19 or later")
	_, err = os.Stat("web/node_modules/playwright-core")
	need(t, err == nil, "no playwright-core: run `npm ci` in ui/web")
}

// freshBox is a node without engines, GPUs, peers and models, whose memory
// nobody could measure.
func freshBox() Overview {
	return Overview{
		Status: Status{Verdict: VerdictOK, Node: NodeInfo{ID: "12D3KooWFresh0a1b2c3d", Name: "fresh", Version: "0.1.0", StateDir: "/var/lib/llmgw"},
			Mesh: MeshInfo{ID: "mesh-new", Provisional: true, Members: 1, Live: 1}},
		Nodes: []Node{{ID: "12D3KooWFresh0a1b2c3d", Name: "fresh", Role: "admin", State: NodeSelf, Version: "0.1.0",
			Hardware: Hardware{Arch: "amd64", OS: "linux", Threads: ptr(4), Devices: []Device{{ID: "cpu", Kind: "cpu", Name: "CPU"}}}}},
	}
}

func serveBox(t *testing.T, f *fixture, h http.Handler) pageBox {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	f.cfg.PublicURL = func() string { return srv.URL }
	box := pageBox{URL: srv.URL + "/"}
	for range linksPerBox {
		link, _, err := f.NewLink(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		box.Links = append(box.Links, link)
	}
	return box
}

// unplugged cuts every connection while down, as a box without power would.
func unplugged(down *atomic.Bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

// answerNulls turns every list of the page's data into null.
func answerNulls(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != prefix+"overview" {
			next.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		raw := rec.Body.Bytes()
		if rec.Code == http.StatusOK {
			raw, _ = json.Marshal(Overview{Status: freshBox().Status})
			raw = bytes.ReplaceAll(raw, []byte("[]"), []byte("null"))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(rec.Code)
		_, _ = w.Write(raw)
	})
}

// serveControl lets the browser's script unplug the box and end its sessions.
func serveControl(t *testing.T, down *atomic.Bool, sessions *memorySessions) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/down":
			down.Store(true)
		case "/up":
			down.Store(false)
		case "/end-sessions":
			sessions.mu.Lock()
			defer sessions.mu.Unlock()
			clear(sessions.rows)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// runPage runs the script and makes a subtest of each of its checks.
func runPage(t *testing.T, config map[string]any) {
	t.Helper()
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "tests/page.mjs")
	cmd.Dir = "web"
	cmd.Env = append(os.Environ(), "LLMGW_PAGE="+string(raw))
	// Asked to end, the script closes its browser; killed, it could not.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	checks := reportChecks(t, out)
	if err := cmd.Wait(); err != nil || checks == 0 {
		t.Errorf("the script ran %d checks and ended with %v: %s", checks, err, stderr.String())
	}
}

func reportChecks(t *testing.T, out io.Reader) (n int) {
	t.Helper()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for ; lines.Scan(); n++ {
		var c struct {
			Name, Problem string
			MS            int
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Errorf("the script printed %q", lines.Text())
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Logf("%d ms in the browser", c.MS)
			if c.Problem != "" {
				t.Error(c.Problem)
			}
		})
	}
	return n
}
