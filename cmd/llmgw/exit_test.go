package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"llmgw/ui"
)

func TestExitCodes(t *testing.T) {
	interrupted, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tc := range map[string]struct {
		ctx  context.Context
		err  error
		want int
	}{
		"success":       {err: nil, want: 0},
		"any failure":   {err: errors.New("x"), want: 1},
		"usage":         {err: usagef("x"), want: 2},
		"no daemon":     {err: &noDaemonError{err: fmt.Errorf("ask: %w", ui.ErrUnreachable)}, want: 3},
		"not found":     {err: &ui.APIError{Status: http.StatusNotFound}, want: 4},
		"in a stream":   {err: &ui.APIError{Code: "not_found"}, want: 4},
		"forbidden":     {err: &ui.APIError{Status: 403, Type: "permission_error"}, want: 5},
		"conflict":      {err: &ui.APIError{Status: 409, Type: "conflict_error"}, want: 6},
		"degraded":      {err: errDegraded, want: 7},
		"temporary":     {err: &ui.APIError{Status: http.StatusServiceUnavailable}, want: 75},
		"interrupted":   {ctx: interrupted, err: context.Canceled, want: 130},
		"bad request":   {err: fmt.Errorf("wrapped: %w", &ui.APIError{Status: 400}), want: 2},
		"other refusal": {err: &ui.APIError{Status: 500}, want: 1},
	} {
		ctx := tc.ctx
		if ctx == nil {
			ctx = context.Background()
		}
		if got := exitCode(ctx, tc.err); got != tc.want {
			t.Errorf("%s: exit %d, want %d", name, got, tc.want)
		}
	}
}

// run executes a command line and returns what it printed and its error.
func run(args ...string) (string, error) {
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	return out.String(), err
}

func TestWrongUsageIsSaid(t *testing.T) {
	for line, want := range map[string]string{
		"frobnicate":          "unknown verb",
		"status now":          "takes no arguments",
		"load":                "needs a model",
		"pull file:/x":        "--as NAME",
		"join":                "either a token or --token-file",
		"join t --token-file": "needs an argument",
		"keys revoke":         "needs the ID or name",
		"up --nosuch":         "unknown flag",
	} {
		_, err := run(strings.Fields(line)...)
		if exitCode(context.Background(), err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("llmgw %s: got %v", line, err)
		}
	}
}

func TestNoDaemonSaysWhatToType(t *testing.T) {
	dir := t.TempDir()
	for _, verb := range []string{"status", "nodes", "models", "ps", "engines", "keys", "ui", "leave"} {
		_, err := run(verb, "--state-dir", dir)
		var said bytes.Buffer
		explain(&said, err)
		if exitCode(context.Background(), err) != exitUnreachable || !strings.Contains(said.String(), "llmgw up --state-dir "+dir) {
			t.Errorf("llmgw %s: %v: %s", verb, err, said.String())
		}
	}
}

func TestConfigWithoutDaemonShowsOrigins(t *testing.T) {
	t.Setenv("LLMGW_NAME", "shed")
	out, err := run("config", "--state-dir", t.TempDir())
	if err != nil || !strings.Contains(out, "env LLMGW_NAME") || !strings.Contains(out, "flag --state-dir") {
		t.Errorf("got %v: %s", err, out)
	}
}

func TestEveryVerbHasHelp(t *testing.T) {
	for _, cmd := range newRoot().Commands() {
		if cmd.Short == "" {
			t.Errorf("%s has no help", cmd.Name())
		}
	}
}

func TestLineReporterIsBrief(t *testing.T) {
	var out bytes.Buffer
	report := lineReporter(&out, "pull m", func() time.Time { return time.Unix(0, 0) })
	for done := range int64(1000) {
		report(ui.Progress{Phase: "downloading", Done: done, Total: 1000})
	}
	report(ui.Progress{Phase: "ready", Done: 1000, Total: 1000})
	if lines := strings.Count(out.String(), "\n"); lines != 11 {
		t.Errorf("%d lines, want one for each tenth and phase:\n%s", lines, out.String())
	}
}

func TestUnknownBytesAreNotZero(t *testing.T) {
	zero := int64(0)
	if bytesText(nil) != "unknown" || bytesText(&zero) != "0 B" {
		t.Errorf("got %q and %q", bytesText(nil), bytesText(&zero))
	}
}
