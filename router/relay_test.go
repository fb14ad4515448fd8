package router

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStreamPassesUnchanged(t *testing.T) {
	stream := "data: {\"choices\":[{\"delta\":{\"content\":\"é\xff漢\"}}],\"usage\":null}\n\n" +
		": engine's comment\n\n" +
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n" + done
	bothWays(t, func(t *testing.T, remote bool) {
		entry, _ := pair(t, remote, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			event(w, strings.SplitAfter(stream, "\n\n")...)
		})
		asks := strings.Replace(chatBody, "{", `{"stream_options":{"include_usage":true},`, 1)
		for range 3 {
			resp := send(t, entry, "POST", chatPath, asks)
			if got := text(t, resp); got != stream {
				t.Errorf("got %q", got)
			}
			for name, want := range map[string]string{
				"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no",
				"Openai-Version": openAIVersion,
			} {
				if got := resp.Header.Get(name); got != want {
					t.Errorf("%s is %q", name, got)
				}
			}
		}
	})
}

func TestAnswersPassUnchangedOnAllRoutes(t *testing.T) {
	answers := map[string]string{
		"/v1/chat/completions": `{"object":"chat.completion","choices":[],"x_vendor":1e400}`,
		"/v1/completions":      `{"object":"text_completion","choices":[]}`,
		"/v1/embeddings":       `{"object":"list","data":[{"embedding":"AAAAAA=="}]}`,
	}
	bothWays(t, func(t *testing.T, remote bool) {
		requests := make(chan string, 1)
		entry, _ := pair(t, remote, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			requests <- string(body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answers[r.URL.Path])
		})
		for path, answer := range answers {
			// What the head does not know passes with its spelling and order.
			body := `{ "z":1e400,"model" :"M", "input":"\ud800", "encoding_format":"base64","a":9223372036854775808}`
			resp := send(t, entry, "POST", path, body)
			if got := text(t, resp); got != answer || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: got %q, %q", path, got, resp.Header)
			}
			if got := <-requests; got != body {
				t.Errorf("%s: engine got %q", path, got)
			}
			if got := resp.ContentLength; got != int64(len(answer)) {
				t.Errorf("%s: length %d", path, got)
			}
		}
	})
}

func TestEnginesErrorsPassUnchanged(t *testing.T) {
	const body = `{"error":{"code":400,"message":"no such field","type":"odd_error","x":4096}}`
	for _, status := range []int{400, 404, 422, 429, 500, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bothWays(t, func(t *testing.T, remote bool) {
				entry, _ := pair(t, remote, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					w.Header().Set("Content-Type", "application/json; charset=utf-8")
					w.WriteHeader(status)
					_, _ = io.WriteString(w, body)
				})
				resp := send(t, entry, "POST", chatPath, chatBody)
				if got := text(t, resp); resp.StatusCode != status || got != body {
					t.Errorf("status %d, body %q", resp.StatusCode, got)
				}
			})
		})
	}
}

// TestEngineSeesOnlyWhatItMay is proved by an engine that echoes its headers.
func TestEngineSeesOnlyWhatItMay(t *testing.T) {
	bothWays(t, func(t *testing.T, remote bool) {
		entry, _ := pair(t, remote, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Server", "engine/1")
			w.Header().Set("Set-Cookie", "a=1")
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.Header().Set("X-Llmgw-Node", "x")
			w.Header().Set("X-Request-Id", "the-engine's")
			w.Header().Set("X-Vendor", "kept")
			r.Header.Set("Path", r.URL.String())
			_ = json.NewEncoder(w).Encode(r.Header)
		})
		resp := send(t, entry, "POST", chatPath+"?api_key=secret", `{"model":"m"}`, func(r *http.Request) {
			r.Header = http.Header{
				"Authorization": {"bearer good"}, "X-Api-Key": {"good"}, "Api-Key": {"good"}, "Cookie": {"c=1"},
				"X-Llmgw-Model": {"other"}, "X-Llmgw-Key": {"admin"}, "Proxy-Authorization": {"x"}, "Te": {"trailers"},
				"Connection": {"X-Hop"}, "X-Hop": {"1"}, "Accept-Encoding": {"gzip"}, "Origin": {"http://evil"},
				"X-Request-Id": {"mine-1"}, "X-Session-Id": {"s"}, "User-Agent": {"client"},
			}
		})
		var got http.Header
		if err := json.Unmarshal([]byte(text(t, resp)), &got); err != nil {
			t.Fatalf("decode echo: %v", err)
		}
		want := http.Header{
			"Authorization": {"Bearer engine-key"}, "Connection": {"close"}, "Content-Length": {"13"},
			"Content-Type": {"application/json"}, "X-Request-Id": {"mine-1"}, "X-Session-Id": {"s"},
			"User-Agent": {"client"}, "Path": {chatPath},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("engine's view (-want +got):\n%s", diff)
		}
		for name, want := range map[string]string{
			"Server": "", "Set-Cookie": "", "Access-Control-Allow-Origin": "", "X-Llmgw-Node": "", "X-Vendor": "kept",
			"X-Request-Id": "mine-1",
		} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("client sees %s: %q", name, got)
			}
		}
		if n := len(resp.Header["Date"]); n != 1 {
			t.Errorf("%d Date headers", n)
		}
	})
}

func TestLocalReplicaComesFirst(t *testing.T) {
	entry, _ := pair(t, true, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "remote") })
	remote := entry.catalog.List()[0].Replicas[0]
	here, _ := pair(t, false, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "local") })
	entry.local.targets = here.local.targets
	entry.catalog.set(view("m", remote, Replica{Peer: "a", Local: true, Epoch: 7}))
	if got := text(t, send(t, entry, "POST", chatPath, chatBody)); got != "local" {
		t.Errorf("answered by %q", got)
	}
	if entry.mesh.opened != 0 {
		t.Errorf("%d streams were opened", entry.mesh.opened)
	}
}

// TestEngineThatAnswersAtOnce guards against handing an inbound body to an
// exchange: a server closes it when the answer starts.
func TestEngineThatAnswersAtOnce(t *testing.T) {
	const total, atOnce = 5000, 16
	stream := strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\" t\"}}]}\n\n", 64) + done
	streams := total
	if testing.Short() || raceEnabled {
		streams = 500
	}
	bothWays(t, func(t *testing.T, remote bool) {
		entry, _ := pair(t, remote, func(w http.ResponseWriter, _ *http.Request) { event(w, stream) })
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atOnce}}
		defer client.CloseIdleConnections()
		work := make(chan int)
		results := make(chan error)
		for range atOnce {
			go func() {
				for range work {
					results <- oneStream(client, entry.url, stream)
				}
			}()
		}
		go func() {
			defer close(work)
			for i := range streams {
				work <- i
			}
		}()
		for i := range streams {
			if err := <-results; err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
		}
	})
}

func oneStream(client *http.Client, url, want string) error {
	req, err := http.NewRequest("POST", url+chatPath, strings.NewReader(chatBody))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer good")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("after %d bytes: %w", len(got), err)
	}
	if string(got) != want {
		return fmt.Errorf("status %d, %d bytes of %d", resp.StatusCode, len(got), len(want))
	}
	return nil
}

// BenchmarkStream counts a whole stream of 64 events that come at once, with
// the client and the engine in the same process.
func BenchmarkStream(b *testing.B) {
	stream := strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\" t\"}}]}\n\n", 64) + done
	for name, remote := range map[string]bool{"local": false, "remote": true} {
		b.Run(name, func(b *testing.B) {
			entry, _ := pair(b, remote, func(w http.ResponseWriter, _ *http.Request) { event(w, stream) })
			b.ReportAllocs()
			for b.Loop() {
				if err := oneStream(http.DefaultClient, entry.url, stream); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
