package lab

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// The clients of the tests, with all that they need, each at one version. These
// files are the one place where a version stands.
var (
	//go:embed testdata/clients/python.txt
	pythonPins string
	//go:embed testdata/clients/litellm.txt
	litellmPins string
	//go:embed testdata/clients/package.json
	nodePackage string
	//go:embed testdata/clients/package-lock.json
	nodeLock string
)

// openaiVersion is that of the Python client which stands for all clients
// outside TestClients.
var openaiVersion = pinned(pythonPins, "openai")

// pinned is a package's version in a list of pins.
func pinned(pins, name string) string {
	for line := range strings.Lines(pins) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), name+"=="); ok {
			return version
		}
	}
	return ""
}

// environment makes a directory of the cache once: its name tells all that it is
// made from, and what a run that was ended left half made is removed.
func environment(name, from string, fill func(dir string) error) (string, error) {
	sum := sha256.Sum256([]byte(from))
	dir := filepath.Join(CacheDir(), name+"-"+hex.EncodeToString(sum[:6]))
	complete := filepath.Join(dir, "complete")
	return dir, withCacheLock(func() error {
		if _, err := os.Stat(complete); err == nil {
			return nil
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove half-made environment: %w", err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make environment: %w", err)
		}
		if err := fill(dir); err != nil {
			return err
		}
		return os.WriteFile(complete, nil, 0o600)
	})
}

// pythonWith makes a virtual environment with these packages. It is bound to the
// interpreter that made it.
func pythonWith(name, pins string) (string, error) {
	version, err := tool("python3", "-c", "import sys; print(sys.version, sys.executable)")
	if err != nil {
		return "", err
	}
	dir, err := environment(name, version+pins, func(dir string) error {
		list := filepath.Join(dir, "pins.txt")
		if err := os.WriteFile(list, []byte(pins), 0o644); err != nil {
			return fmt.Errorf("make environment: %w", err)
		}
		if _, err := tool("python3", "-m", "venv", dir); err != nil {
			return err
		}
		_, err := tool(filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", list)
		return err
	})
	return filepath.Join(dir, "bin", "python"), err
}

var (
	python  = sync.OnceValues(func() (string, error) { return pythonWith("python", pythonPins) })
	litellm = sync.OnceValues(func() (string, error) { return pythonWith("litellm", litellmPins) })
	// nodejs has the client for Node.js, in node_modules.
	nodejs = sync.OnceValues(func() (string, error) {
		return environment("node", nodePackage+nodeLock, func(dir string) error {
			for name, text := range map[string]string{"package.json": nodePackage, "package-lock.json": nodeLock} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					return fmt.Errorf("make environment: %w", err)
				}
			}
			_, err := tool("npm", "ci", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund")
			return err
		})
	})
)

// Python is an interpreter that has the openai package and others.
func Python(tb testing.TB) string { tb.Helper(); return client(tb, python, "python3") }

// LiteLLM is an interpreter that has litellm-core.
func LiteLLM(tb testing.TB) string { tb.Helper(); return client(tb, litellm, "python3") }

// Node is a directory from which Node.js finds the openai package of npm.
func Node(tb testing.TB) string { tb.Helper(); return client(tb, nodejs, "node", "npm") }

// client makes an environment, which takes the programs.
func client(tb testing.TB, get func() (string, error), programs ...string) string {
	tb.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			Skip(tb, "this client needs %s: %v", p, err)
		}
	}
	path, err := get()
	if err != nil {
		tb.Fatalf("get a client: %v", err)
	}
	return path
}
