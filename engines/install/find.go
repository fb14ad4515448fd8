package install

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"llmgw/mesh/catalog"
)

const (
	serverProgram = "llama-server"
	rpcProgram    = "ggml-rpc-server"
)

// errNotFound says that an engine is nowhere on this box yet.
var errNotFound = errors.New("engine is not installed")

// found is a usable llama.cpp.
type found struct {
	info catalog.EngineInfo
}

// program finds a program of the engine beside its server.
func (f found) program(name string) (string, bool) {
	switch name {
	case serverProgram:
		return f.info.Path, true
	case rpcProgram:
		for _, n := range []string{rpcProgram, "rpc-server"} { // the second is its former name
			p := filepath.Join(filepath.Dir(f.info.Path), n)
			if isProgram(p) {
				return p, true
			}
		}
	}
	return "", false
}

// find takes the first of the three ways that leads to a usable engine. A
// configured path is an order: when it does not work, that is an error and
// nothing else is taken instead.
func (i *Installer) find(ctx context.Context) (found, error) {
	if path := i.configured[catalog.EngineLlamaCpp]; path != "" {
		return i.fromConfigured(ctx, path)
	}
	onPath, why := i.fromPATH(ctx)
	if why == "" {
		return onPath, nil
	}
	return i.fromWheel(ctx, why)
}

func (i *Installer) fromConfigured(ctx context.Context, path string) (found, error) {
	c, err := i.check(ctx, path)
	if err != nil {
		return found{}, &Error{
			Engine: catalog.EngineLlamaCpp, Detail: fmt.Sprintf("the configured program %s cannot be used: %v", path, err), Err: err,
			Hint: "correct the path of the engine in this node's configuration, or take it out to have llama.cpp found or installed",
		}
	}
	return c.found(path, "configured path"), nil
}

// fromPATH returns why it was not taken, for the line that tells what was.
func (i *Installer) fromPATH(ctx context.Context) (_ found, why string) {
	path, err := i.lookPath(serverProgram)
	if err != nil {
		return found{}, "no " + serverProgram + " on PATH"
	}
	if path, err = filepath.Abs(path); err != nil {
		return found{}, err.Error()
	}
	c, err := i.check(ctx, path)
	if err != nil {
		return found{}, fmt.Sprintf("%s is not used: %v", path, err)
	}
	return c.found(path, "PATH"), ""
}

func (i *Installer) fromWheel(ctx context.Context, why string) (found, error) {
	path := filepath.Join(i.dir, i.llama.folder(), serverProgram)
	if !isProgram(path) {
		return found{}, fmt.Errorf("%w: %s", errNotFound, why)
	}
	c, err := i.check(ctx, path)
	if err != nil {
		// An unpacked engine that does not run is as good as none: installing
		// again replaces it.
		return found{}, fmt.Errorf("%w: %s cannot be used: %w", errNotFound, path, err)
	}
	return c.found(path, "wheel "+i.llama.String()+" ("+why+")"), nil
}

func (c check) found(path, from string) found {
	return found{info: catalog.EngineInfo{
		Name: catalog.EngineLlamaCpp, Version: c.version, From: from, Path: path, Build: c.build,
	}}
}

// neededFlags are the flags without which llama-server is too old for us.
func neededFlags() []string {
	return []string{
		"--host", "--port", "--model", "--alias", "--ctx-size", "--parallel",
		"--metrics", "--api-key", "--offline", "--fit", "--jinja", "--pooling",
	}
}

// missingFlags compares them with a program's help text, word by word.
func missingFlags(help string) []string {
	words := map[string]bool{}
	for _, w := range strings.FieldsFunc(help, func(r rune) bool { return strings.ContainsRune(" \t\r\n,[]|=", r) }) {
		words[w] = true
	}
	var missing []string
	for _, f := range neededFlags() {
		if !words[f] {
			missing = append(missing, f)
		}
	}
	return missing
}
