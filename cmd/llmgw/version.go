package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

type versionAnswer struct {
	SchemaVersion int    `json:"schema_version"`
	Version       string `json:"version"`
	Go            string `json:"go"`
	Platform      string `json:"platform"`
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versionAnswer{1, version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return show(cmd, v, func(w io.Writer) { fmt.Fprintf(w, "llmgw %s, %s, %s\n", v.Version, v.Go, v.Platform) })
		},
	}
}
