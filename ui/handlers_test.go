package ui

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

func (f *fixture) socketAsk(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.AdminHandler().ServeHTTP(w, r)
	return w
}

func TestBadBodies(t *testing.T) {
	for _, c := range []struct {
		name, body, contentType, code string
		status                        int
	}{
		{"empty", "", "application/json", "bad_json", 400},
		{"cut", `{"model":`, "application/json", "bad_json", 400},
		{"wrong type", `{"model":7}`, "application/json", "bad_json", 400},
		{"array", `[]`, "application/json", "bad_json", 400},
		{"unknown field", `{"model":"m","engine_path":"/bin/sh"}`, "application/json", "bad_json", 400},
		{"two values", `{"model":"m"}{"model":"n"}`, "application/json", "bad_json", 400},
		{"too large", `{"model":"` + strings.Repeat("m", maxRequest) + `"}`, "application/json", "body_too_large", 413},
		{"form", "model=m", "application/x-www-form-urlencoded", "not_json", 415},
		{"text that is JSON", `{"model":"m"}`, "text/plain", "not_json", 415},
		{"no content type", `{"model":"m"}`, "", "not_json", 415},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			r := browser("POST", "/admin/v1/models/load", c.body)
			r.Header.Set("Content-Type", c.contentType)
			w := f.socketAsk(r)
			if b := refusalOf(t, w); w.Code != c.status || b.Error.Code != c.code {
				t.Errorf("status %d, %+v; want %d %s", w.Code, b, c.status, c.code)
			}
			if f.backend.last() != nil {
				t.Errorf("the backend was asked: %v", f.backend.last())
			}
		})
	}
}

func TestBackendFaultIsAnswered(t *testing.T) {
	f := newFixture(t)
	f.backend.err = errDisk
	for _, rt := range f.routes() {
		if rt.path == "session" || rt.path == "ui-link" {
			continue
		}
		w := f.socketAsk(browser(rt.method, rt.concrete(), "{}"))
		b := refusalOf(t, w)
		if w.Code != http.StatusInternalServerError || !strings.Contains(b.Error.Message, errDisk.Error()) {
			t.Errorf("%s %s: status %d, %+v", rt.method, rt.path, w.Code, b)
		}
	}
}

func TestEmptyMeshHasNoNullLists(t *testing.T) {
	f := newFixture(t)
	f.backend.overview = Overview{Nodes: []Node{{}}, Models: []Model{{}}, Replicas: []Replica{{}}}
	for _, rt := range f.routes() {
		if rt.method != http.MethodGet {
			continue
		}
		var v any
		w := f.socketAsk(browser("GET", rt.concrete(), ""))
		if rt.path == "state/backup" {
			continue // the one answer that is no JSON
		}
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
			t.Fatalf("%s: %v", rt.path, err)
		}
		for _, bad := range nullLists(v) {
			t.Errorf("%s: %s is null", rt.path, bad)
		}
		if v.(map[string]any)["schema_version"] != float64(SchemaVersion) {
			t.Errorf("%s: no schema version", rt.path)
		}
	}
}

// numbers are the fields that may be null; every other null would be a list.
var numbers = map[string]bool{
	"last_contact_seconds": true, "skew_seconds": true, "round_trip_ms": true, "last_sync_seconds": true, "disk_free": true, "threads": true, "ram_total": true,
	"ram_free": true, "size_bytes": true, "context": true, "memory_need": true, "state_seconds": true,
	"slots": true, "in_flight": true, "waiting": true, "kv_tokens": true, "kv_use": true, "pid": true, "memory_total": true, "memory_free": true,
}

func nullLists(v any) (found []string) {
	switch v := v.(type) {
	case map[string]any:
		for key, part := range v {
			if part == nil && !numbers[key] {
				found = append(found, key)
			}
			found = append(found, nullLists(part)...)
		}
	case []any:
		for _, part := range v {
			found = append(found, nullLists(part)...)
		}
	}
	return found
}

func TestUnknownNumbersAreNull(t *testing.T) {
	raw, err := json.Marshal([]any{Node{}, Device{}, Hardware{}, Replica{}, Model{}, Fetch{}})
	if err != nil {
		t.Fatal(err)
	}
	for name := range numbers {
		if name == "pid" && strings.Contains(string(raw), `"pid":null`) {
			continue
		}
		if !strings.Contains(string(raw), `"`+name+`":null`) {
			t.Errorf("unknown %s is not null", name)
		}
	}
	if !strings.Contains(string(raw), `"total":null`) {
		t.Error("unknown total of a download is not null")
	}
}

func streamLines(t *testing.T, w *httptest.ResponseRecorder) (lines []streamLine) {
	t.Helper()
	for _, raw := range strings.Split(strings.TrimSpace(w.Body.String()), "\n") {
		var l streamLine
		if err := json.Unmarshal([]byte(raw), &l); err != nil {
			t.Fatalf("line %q: %v", raw, err)
		}
		lines = append(lines, l)
	}
	return lines
}

func TestProgressIsThinnedAndNeverRunsBackwards(t *testing.T) {
	f := newFixture(t)
	f.backend.pull = func(step func(Progress)) error {
		step(Progress{"downloading", 5, 100})
		step(Progress{"downloading", 6, 100}) // within the gap: left out
		f.now = f.now.Add(time.Second)
		step(Progress{"downloading", 50, 100})
		f.now = f.now.Add(time.Second)
		step(Progress{"downloading", 20, 100}) // a restart: held at 50, so nothing new
		f.now = f.now.Add(time.Second)
		step(Progress{"downloading", 60, 100})
		step(Progress{"downloading", 100, 100}) // within the gap, but the end
		step(Progress{"verifying", 0, 100})     // within the gap, but another phase
		return nil
	}
	w := f.socketAsk(browser("POST", "/admin/v1/models/pull", `{"source":"file:x","as":"m"}`))
	var got []int64
	lines := streamLines(t, w)
	for _, l := range lines[:len(lines)-1] {
		got = append(got, l.Done)
	}
	check(t, nil, got, []int64{5, 50, 60, 100, 0})
	if w.Header().Get("Content-Type") != "application/x-ndjson" || !w.Flushed || lines[len(lines)-1].Result == nil {
		t.Errorf("content type %q, flushed %v, last line %+v", w.Header().Get("Content-Type"), w.Flushed, lines[len(lines)-1])
	}
}

func TestUnknownTotalIsNullOnTheWire(t *testing.T) {
	f := newFixture(t)
	f.backend.pull = func(step func(Progress)) error { step(Progress{"downloading", 5, 0}); return nil }
	w := f.socketAsk(browser("POST", "/admin/v1/engines/install", `{"engine":"llamacpp"}`))
	if !strings.HasPrefix(w.Body.String(), `{"done":5,"phase":"downloading","total":null}`) {
		t.Errorf("stream begins with %s", w.Body)
	}
}

func TestProgressFromManyGoroutines(t *testing.T) {
	f := newFixture(t)
	f.backend.pull = func(step func(Progress)) error {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for n := range 100 {
					step(Progress{[]string{"downloading", "verifying"}[n%2], int64(i*100 + n), 800})
				}
			})
		}
		wg.Wait()
		return nil
	}
	w := f.socketAsk(browser("POST", "/admin/v1/models/pull", `{"source":"file:x","as":"m"}`))
	if lines := streamLines(t, w); lines[len(lines)-1].Result == nil {
		t.Error("the stream has no result")
	}
}

func TestPageIsServed(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		name, method, path string
		status             int
	}{
		{"page", "GET", "/", 200},
		{"head", "HEAD", "/", 200},
		{"page by name", "GET", "/index.html", 200},
		{"placeholder is not a page of its own", "GET", "/placeholder.html", 404},
		{"unknown file", "GET", "/assets/none.js", 404},
		{"folder", "GET", "/assets/", 404},
		{"out of the folder", "GET", "/assets/../placeholder.html", 404},
		{"encoded way out", "GET", "/assets/..%2fplaceholder.html", 404},
		{"write", "POST", "/", 405},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := browser(c.method, "/", "")
			r.URL.Path = strings.ReplaceAll(c.path, "%2f", "/")
			w := httptest.NewRecorder()
			f.page().ServeHTTP(w, r)
			if w.Code != c.status {
				t.Errorf("status %d, want %d", w.Code, c.status)
			}
		})
	}
	w := f.ask(browser("GET", "/", ""))
	if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") || w.Header().Get("Cache-Control") != "no-cache" {
		t.Errorf("headers %v", w.Header())
	}
}

// TestPageLoadsOnlyItself asks for every address in the built page.
func TestPageLoadsOnlyItself(t *testing.T) {
	needBuiltPage(t)
	f := newFixture(t)
	page := f.ask(browser("GET", "/", "")).Body.String()
	refs := pageAddress.FindAllStringSubmatch(page, -1)
	if len(refs) < 3 {
		t.Fatalf("only %d addresses in the page", len(refs))
	}
	for _, ref := range refs {
		path, relative := strings.CutPrefix(ref[1], "./")
		if !relative {
			t.Errorf("address %q is not relative", ref[1])
			continue
		}
		w := f.ask(browser("GET", "/"+path, ""))
		if w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%s: status %d", path, w.Code)
		}
		if strings.HasPrefix(path, "assets/") && !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s is not kept by browsers", path)
		}
	}
	if inlineScript.MatchString(page) || strings.Contains(page, "<style") {
		t.Error("the page has inline code, which its policy forbids")
	}
}
