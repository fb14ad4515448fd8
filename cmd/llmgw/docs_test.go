package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"llmgw/mesh/catalog"
)

func operations(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestEveryMeshSettingIsDocumented(t *testing.T) {
	doc := operations(t)
	for _, s := range catalog.MeshSettings() {
		if !strings.Contains(doc, "| `"+s.Key+"` |") {
			t.Errorf("docs/operations.md does not tell of %s", s.Key)
		}
	}
}

// The exit codes stand in the help and in the docs, alike.
func TestExitCodesAreDocumented(t *testing.T) {
	codes := func(text string) []string {
		_, list, _ := strings.Cut(text, "0 done")
		return regexp.MustCompile(`\b\d+ [a-z]+`).FindAllString("0 done"+list, -1)
	}
	inHelp, inDocs := codes(rootHelp), codes(operations(t))
	if len(inHelp) != 10 || strings.Join(inHelp, ";") != strings.Join(inDocs, ";") {
		t.Errorf("help says %v, the docs %v", inHelp, inDocs)
	}
}

func TestEveryVerbSaysJSONAndStateDir(t *testing.T) {
	for _, cmd := range newRoot().Commands() {
		for _, flag := range []string{"json", "state-dir"} {
			if cmd.InheritedFlags().Lookup(flag) == nil {
				t.Errorf("%s has no --%s", cmd.Name(), flag)
			}
		}
	}
}
