package main

import (
	"os"

	"llmgw/node"

	"github.com/spf13/cobra"
)

func newUp() *cobra.Command {
	var file string
	var noMDNS bool
	var peers []string
	cmd := &cobra.Command{
		Use: "up", Short: "Run the daemon on this box", Args: exactly(0, ""),
		Long: `Run the daemon: it answers the API at once, finds its peers, and runs engines.

Examples:
  llmgw up
  llmgw up --mesh-secret-file /etc/llmgw/secret      boxes on one link join with nothing else typed
  llmgw up --peer 192.0.2.7:8771                     a peer that multicast does not reach
  llmgw up --state-dir ./state --api 127.0.0.1:9000 --mesh 127.0.0.1:9001

Each setting comes from its flag, else LLMGW_*, else the config file, else the
default; llmgw config shows which.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			src := node.Sources{Flags: map[string]string{}, Env: os.LookupEnv, File: file}
			for flag, key := range map[string]string{
				"state-dir": "state_dir", "name": "name", "api": "api", "mesh": "mesh",
				"mesh-secret-file": "mesh_secret_file", "log-format": "log.format", "log-level": "log.level",
			} {
				if f := cmd.Flags().Lookup(flag); f.Changed {
					src.Flags[key] = f.Value.String()
				}
			}
			if noMDNS {
				src.Flags["discovery.lan"] = "false"
			}
			if len(peers) > 0 {
				src.Flags["peers"] = joinComma(peers)
			}
			return node.Up(cmd.Context(), src, node.Build{Version: version}, os.Stdout, os.Stderr)
		},
	}
	cmd.Flags().String("name", "", "label of this box (default: its host name)")
	cmd.Flags().String("api", "", "ADDR:PORT of the public port: API, page and metrics (default :8770)")
	cmd.Flags().String("mesh", "", "ADDR:PORT of the mesh port (default :8771)")
	cmd.Flags().String("mesh-secret-file", "", "file with the mesh's secret: boxes that share it are one mesh (llmgw secret new)")
	cmd.Flags().StringArrayVar(&peers, "peer", nil, "HOST:PORT or multiaddr of a peer to dial; may be given several times")
	cmd.Flags().BoolVar(&noMDNS, "no-mdns", false, "neither announce this box on the link nor look for others")
	cmd.Flags().StringVar(&file, "config", "", "config file (default: config.yaml in the state directory, else "+node.SystemConfigFile+")")
	cmd.Flags().String("log-format", "", "auto, text or json (auto: text on a terminal)")
	cmd.Flags().String("log-level", "", "debug, info, warn or error")
	return cmd
}
