package main

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newSecret() *cobra.Command {
	cmd := &cobra.Command{Use: "secret", Short: "Make a mesh secret", Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(&cobra.Command{
		Use: "new", Short: "Print a new mesh secret", Args: exactly(0, ""),
		Long: "Print a new mesh secret of 256 random bits. Boxes started with the same one are one mesh.\n\nExample:\n  (umask 077; llmgw secret new > /etc/llmgw/secret) && llmgw up --mesh-secret-file /etc/llmgw/secret",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var raw [32]byte
			if _, err := rand.Read(raw[:]); err != nil {
				return fmt.Errorf("make secret: %w", err)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(raw[:])))
			return err
		},
	})
	return cmd
}
