package ui

import (
	"io/fs"
	"os"
	"regexp"
	"testing"
)

var (
	pageAddress  = regexp.MustCompile(`(?:src|href)="([^"]+)"`)
	inlineScript = regexp.MustCompile(`<script[^>]*>[^<]`)
)

// need skips a test that lacks a part of the machine, or fails it where the
// machine was promised to have everything.
func need(t *testing.T, have bool, reason string) {
	t.Helper()
	if have {
		return
	}
	if os.Getenv("LLMGW_CI") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

func needBuiltPage(t *testing.T) {
	t.Helper()
	_, err := fs.Stat(dist, "web/dist/index.html")
	need(t, err == nil, "the page is not built: run `make ui`")
}
