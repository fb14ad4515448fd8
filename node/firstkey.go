package node

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"llmgw/mesh/catalog"
)

// firstKeyFile holds the key that the first start made until it was shown.
const firstKeyFile = "first-key"

// ensureFirstKey makes the first API key of a new mesh of one: a key is always
// needed, and without this one nobody could have any. It waits in a file that
// only this user reads until it is shown, once.
func (n *Node) ensureFirstKey() error {
	mark, ok, err := n.store.Meta("first_key_mesh")
	if err != nil {
		return fmt.Errorf("look for first API key: %w", err)
	}
	if ok && string(mark) == n.mesh.MeshID() {
		return nil
	}
	if err := os.Remove(n.path(firstKeyFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove void first API key: %w", err)
	}
	if have, err := n.catalog.HasAPIKeys(); err != nil || have || len(n.mesh.Nodes()) > 1 {
		return err // the mesh that this box joined has its own keys
	}
	text, _, err := n.keys.Create("first", []string{catalog.ScopeInfer, catalog.ScopeMetrics, catalog.ScopeAdmin}, true)
	if err != nil {
		return fmt.Errorf("make first API key: %w", err)
	}
	if err := writeFileOnce(n.path(firstKeyFile), []byte(text+"\n")); err != nil {
		return fmt.Errorf("keep first API key: %w", err)
	}
	n.log.Info("the first API key is made; show it once with: llmgw keys first")
	return n.store.SetMeta("first_key_mesh", []byte(n.mesh.MeshID()))
}

// takeFirstKey shows the first key once: what is read is gone.
func (n *Node) takeFirstKey() (string, error) {
	path := n.path(firstKeyFile)
	taken := path + ".taken"
	if err := os.Rename(path, taken); err != nil { // of two callers one gets it
		return "", err
	}
	raw, err := os.ReadFile(taken)
	return strings.TrimSpace(string(raw)), errors.Join(err, os.Remove(taken))
}

// greet shows the first key on a terminal; elsewhere it waits for `llmgw keys
// first`, since what is written there may end in a log.
func (n *Node) greet(stdout io.Writer) error {
	if !isTerminal(stdout) {
		return nil
	}
	key, err := n.takeFirstKey()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "\nFirst API key of this mesh, shown only now:\n\n  %s\n\n", key)
	return err
}
