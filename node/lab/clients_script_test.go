package lab

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

//go:embed testdata/clients/*.py testdata/clients/*.mjs
var clientSources embed.FS

// clientPrograms are the files of the clients that are programs of their own.
func clientPrograms(tb testing.TB) map[string]string {
	tb.Helper()
	const dir = "testdata/clients"
	list, err := clientSources.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range list {
		text, err := clientSources.ReadFile(dir + "/" + f.Name())
		if err != nil {
			tb.Fatal(err)
		}
		out[f.Name()] = string(text)
	}
	return out
}

// nodeVersion is the pinned version of npm's openai package.
func nodeVersion(tb testing.TB) string {
	tb.Helper()
	var p struct{ Dependencies map[string]string }
	if err := json.Unmarshal([]byte(nodePackage), &p); err != nil {
		tb.Fatal(err)
	}
	return p.Dependencies["openai"]
}

// clientLimit is far above what a client takes on a busy machine.
const clientLimit = 5 * time.Minute

// largeBody is a text that no body has room for.
const largeBody = 65 << 20

// clientLine is a line of a client's program: a cell, a question, or that all cells but
// the limited ones are filled.
type clientLine struct {
	finding
	Box     string `json:"box"`
	Feature string `json:"feature"`
	Ask     string `json:"ask"`
	Filled  bool   `json:"filled"`
}

// script runs a client's program, and returns once its column is filled but for
// the limited cells; finish waits for those.
func script(program, file string, args ...string) func(*clientStage, *column) (finish func()) {
	return func(s *clientStage, c *column) func() {
		argv := append([]string{program, filepath.Join(s.clientFiles(), file)}, args...)
		ctx, cancel := context.WithTimeout(context.Background(), clientLimit)
		filled, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer cancel()
			defer close(ended)
			if err := s.converse(ctx, c, argv, filled); err != nil {
				c.ended = err.Error()
			}
		}()
		select {
		case <-filled:
		case <-ended:
		}
		return func() { <-ended }
	}
}

// request is what a client's program is asked, as its first line of input.
func (s *clientStage) request(c *column) ([]byte, error) {
	last := len(c.keys.may) - 1
	wrong := c.keys.may[:last] + string(c.keys.may[last]^1)
	return json.Marshal(map[string]any{
		"model": "smollm2", "key": c.keys.may, "narrow": c.keys.narrow, "wrong": wrong, "limited": c.keys.limited,
		"boxes": map[string]string{"a": s.a.URL(), "b": s.b.URL()}, "home": c.home.Name, "large": largeBody,
	})
}

// converse runs the program and answers what it asks. The error says how it ended
// and the last that it printed.
func (s *clientStage) converse(ctx context.Context, c *column, argv []string, filled chan<- struct{}) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.WaitDelay = 5 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	request, err := s.request(c)
	if err != nil {
		return err
	}
	if err := s.laptop.start(cmd); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(in, "%s\n", request) // a program that ended says why below
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var line clientLine
		switch err := json.Unmarshal(lines.Bytes(), &line); {
		case err != nil:
			fmt.Fprintln(&stderr, lines.Text())
		case line.Ask == "idle":
			_, _ = fmt.Fprintln(in, s.idle(c, line.Box))
		case line.Filled:
			close(filled)
		default:
			c.found(line.Feature, line.Box, line.finding)
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("its program ended with %w: %s", err, lastLines(stderr.String(), 10))
	}
	return nil
}
