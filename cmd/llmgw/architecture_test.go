package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layers lists the top folders from the top down: a package imports only from
// its own folder and from folders below it.
var layers = []string{"cmd", "node", "ui", "router", "engines", "fetch", "mesh", "crdt"}

// only names who alone may import a module.
var only = map[string][]string{
	"github.com/libp2p/":             {"llmgw/mesh", "llmgw/mesh/discovery", "llmgw/mesh/token"},
	"github.com/grandcat/zeroconf":   {"llmgw/mesh/discovery"},
	"github.com/dgraph-io/badger/v4": {"llmgw/crdt/store"},
	"github.com/go-zeromq/zmq4":      {"llmgw/engines/kvevents", "llmgw/engines/sim"},
}

// topLevel is everything that may stand at the top, dotfiles aside.
var topLevel = []string{"node", "mesh", "crdt", "engines", "router", "fetch", "ui", "packaging", "cmd", "docs",
	"go.mod", "go.sum", "Makefile", "README.md", "LICENSE"}

type goPackage struct {
	ImportPath string
	Doc        string
	Imports    []string
	GoFiles    []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,Imports,GoFiles", "./...")
	cmd.Dir = repositoryRoot(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	var packages []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p goPackage
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	if len(packages) < 10 {
		t.Fatalf("found only %d packages", len(packages))
	}
	return packages
}

func repositoryRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// layer is the place of a package of ours in layers; false for others.
func layer(path string) (int, bool) {
	rest, ours := strings.CutPrefix(path, "llmgw/")
	top, _, _ := strings.Cut(rest, "/")
	return slices.Index(layers, top), ours
}

func violations(p goPackage) []string {
	var found []string
	at, _ := layer(p.ImportPath)
	if at < 0 {
		found = append(found, "lies in none of "+strings.Join(layers, ", "))
	}
	for _, imported := range p.Imports {
		if below, ours := layer(imported); ours && below < at {
			found = append(found, "imports "+imported+", which lies above it")
		}
		top, _, _ := strings.Cut(strings.TrimPrefix(p.ImportPath, "llmgw/"), "/")
		plain := strings.HasPrefix(imported, "llmgw/mesh") && imported != "llmgw/mesh/catalog" || strings.HasPrefix(imported, "llmgw/crdt")
		if (top == "engines" || top == "fetch") && plain {
			found = append(found, "imports "+imported+"; of the mesh it may know only mesh/catalog")
		}
		for module, allowed := range only {
			if strings.HasPrefix(imported, module) && !slices.Contains(allowed, p.ImportPath) {
				found = append(found, "imports "+imported+", which only "+strings.Join(allowed, ", ")+" may")
			}
		}
	}
	if p.Doc == "" {
		found = append(found, "has no package comment that says what it owns")
	}
	return found
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range listPackages(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		for _, v := range violations(p) {
			t.Errorf("%s %s", p.ImportPath, v)
		}
	}
}

func TestViolationsAreFound(t *testing.T) {
	for name, p := range map[string]goPackage{
		"upward import":          {ImportPath: "llmgw/crdt", Doc: "x", Imports: []string{"llmgw/mesh"}},
		"libp2p outside mesh":    {ImportPath: "llmgw/router", Doc: "x", Imports: []string{"github.com/libp2p/go-libp2p"}},
		"badger outside store":   {ImportPath: "llmgw/node", Doc: "x", Imports: []string{"github.com/dgraph-io/badger/v4"}},
		"engines knows the mesh": {ImportPath: "llmgw/engines", Doc: "x", Imports: []string{"llmgw/mesh"}},
		"no comment":             {ImportPath: "llmgw/fetch"},
		"unknown folder":         {ImportPath: "llmgw/util", Doc: "x"},
	} {
		if len(violations(p)) == 0 {
			t.Errorf("%s: nothing was found", name)
		}
	}
}

func TestTopLevelHoldsNothingElse(t *testing.T) {
	cmd := exec.Command("git", "ls-files")
	cmd.Dir = repositoryRoot(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list tracked files: %v", err)
	}
	for file := range strings.Lines(string(out)) {
		top, _, _ := strings.Cut(strings.TrimSpace(file), "/")
		if !strings.HasPrefix(top, ".") && !slices.Contains(topLevel, top) {
			t.Errorf("%s does not belong at the top level", top)
		}
	}
}
