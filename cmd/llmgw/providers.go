package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newProviders() *cobra.Command {
	cmd := &cobra.Command{
		Use: "providers", Short: "Services outside the mesh that answer for models it has not", Args: exactly(0, ""), RunE: listProviders,
		Long: `List, set, remove and test services outside the mesh that speak the OpenAI API, another llmgw
mesh included. A request for a name that no model of the mesh has goes to the providers
whose models fit it: the one of the highest priority first, the next when it fails before
its first byte. Models of the mesh are sent nowhere, unless a provider is told so.

Examples:
  llmgw providers
  llmgw providers set openai --url https://api.openai.com/v1 --key-file key.txt --models 'gpt-*,o4-mini'
  pass show spare | llmgw providers set spare --url https://other.example/v1 --key-file - --models fast=vendor/fast-v2 --priority -1
  llmgw providers test openai
  llmgw providers rm spare`,
	}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Short: "List the providers", Args: exactly(0, ""), RunE: listProviders},
		newProviderSet(),
		&cobra.Command{Use: "rm NAME", Short: "Remove a provider and its keys", Args: exactly(1, "a provider"), RunE: removeProvider},
		&cobra.Command{Use: "test NAME", Short: "Ask a provider for its models with each of its keys", Args: exactly(1, "a provider"), RunE: testProvider})
	return cmd
}

// providerFlags are what `providers set` was given.
type providerFlags struct {
	url, keyFile, caFile, held, sponsor    string
	models, native                         []string
	priority, parallel                     int
	insecure, allowPrivate, noKeys, direct bool
}

func newProviderSet() *cobra.Command {
	var f providerFlags
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Make a provider, or change one; what is not named stays", Args: exactly(1, "a name"),
		Long: `Make a provider, or change one; what is not named stays.

The key file holds a key a line; they are tried in that order, and one that is limited or
refused is left alone for a while. Keys are for one scheme, host and port: with another
URL they are given again. They are kept in the state of every box of the mesh.

Models are names in which '*' stands for anything, or NAME=THEIRS for a model that the
provider calls THEIRS. --use-for-held says whether it answers for models of the mesh too:
never; last, when no replica has room; or equal, as one among the replicas.

With --sponsor NODE it is a host: an Ollama, LM Studio, llama-server or vLLM on a machine that
cannot be a box of the mesh. The node looks each 3 s at what it has and how busy it is, and
passes requests on. Without --models it answers for all that it lists.

Examples:
  llmgw providers set openai --url https://api.openai.com/v1 --key-file key.txt --models 'gpt-*'
  llmgw providers set desk --url http://192.168.1.20:11434 --allow-private --sponsor box-a
  llmgw providers set lab --url https://10.0.0.7:8770 --allow-private --ca-file lab.pem --key-file - --models '*'
  llmgw providers set openai --parallel 20 --priority 5`,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.request(cmd, args[0])
			if err != nil {
				return err
			}
			return send(cmd, (*ui.Client).SetProvider, r, func(w io.Writer, a ui.ProviderAnswer) {
				printProviders(w, []ui.Provider{a.Provider})
				for _, warning := range a.Warnings {
					fmt.Fprintln(w, "note:", warning)
				}
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (f *providerFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "base URL of its API; without a path, /v1 is meant")
	flags.StringVar(&f.keyFile, "key-file", "", "file with a key a line; - reads stdin")
	flags.BoolVar(&f.noKeys, "no-keys", false, "take its keys away")
	flags.StringSliceVar(&f.models, "models", nil, "models that it answers for: PATTERN or NAME=THEIRS")
	flags.IntVar(&f.priority, "priority", 0, "a higher one is asked first, -1000 to 1000")
	flags.StringVar(&f.held, "use-for-held", "never", "for models that the mesh holds: never, last or equal")
	flags.Lookup("use-for-held").NoOptDefVal = "last"
	flags.StringVar(&f.caFile, "ca-file", "", "PEM file with the authority of its certificate; empty: the system's")
	flags.BoolVar(&f.insecure, "insecure", false, "do not check its certificate")
	flags.BoolVar(&f.allowPrivate, "allow-private", false, "it may be at a private address, and there be plain http")
	flags.IntVar(&f.parallel, "parallel", 0, "requests that each box has there at once; 0: no bound")
	flags.StringVar(&f.sponsor, "sponsor", "", "node that looks after it, which makes it a host; empty: none")
	flags.BoolVar(&f.direct, "direct", false, "of a host: the other boxes reach it themselves, not through its sponsor")
	flags.StringSliceVar(&f.native, "native", nil, "APIs that it speaks beside chat completions: responses, messages, tokenize")
}

// request names what was given, and nothing else.
func (f *providerFlags) request(cmd *cobra.Command, name string) (ui.ProviderRequest, error) {
	r := ui.ProviderRequest{Name: name}
	given := func(flag string) bool { return cmd.Flags().Changed(flag) }
	if cmd.Flags().NFlag() == 0 {
		return r, usagef("llmgw providers set needs something to set; see llmgw providers set --help")
	}
	named(&r.URL, &f.url, given("url"))
	named(&r.Priority, &f.priority, given("priority"))
	named(&r.UseForHeld, &f.held, given("use-for-held"))
	named(&r.Insecure, &f.insecure, given("insecure"))
	named(&r.AllowPrivate, &f.allowPrivate, given("allow-private"))
	named(&r.Parallel, &f.parallel, given("parallel"))
	named(&r.Sponsor, &f.sponsor, given("sponsor"))
	named(&r.Direct, &f.direct, given("direct"))
	models, native := ui.List[string](f.models), ui.List[string](f.native)
	named(&r.Models, &models, given("models"))
	named(&r.Native, &native, given("native"))
	if given("ca-file") {
		pem := ""
		if f.caFile != "" {
			raw, err := readArgument(cmd, f.caFile)
			if err != nil {
				return r, fmt.Errorf("read certificates: %w", err)
			}
			pem = string(raw)
		}
		r.CA = &pem
	}
	return r, f.readKeys(cmd, &r)
}

// readKeys takes keys from a file or stdin, never from the command line, where
// others could see them.
func (f *providerFlags) readKeys(cmd *cobra.Command, r *ui.ProviderRequest) error {
	switch {
	case f.noKeys && f.keyFile != "":
		return usagef("--no-keys and --key-file exclude each other")
	case f.noKeys:
		r.Keys = &ui.List[string]{}
		return nil
	case f.keyFile == "":
		return nil
	}
	text, err := readSecretArgument(cmd, f.keyFile)
	if err != nil {
		return err
	}
	keys := ui.List[string]{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			keys = append(keys, line)
		}
	}
	if len(keys) == 0 {
		return usagef("the key file holds no key; --no-keys takes keys away")
	}
	r.Keys = &keys
	return nil
}

func named[T any](field **T, value *T, given bool) {
	if given {
		*field = value
	}
}

func listProviders(cmd *cobra.Command, _ []string) error {
	return ask(cmd, (*ui.Client).Providers, func(w io.Writer, list ui.ProviderList) { printProviders(w, list.Providers) })
}

func printProviders(w io.Writer, providers []ui.Provider) {
	var rows [][]string
	for _, p := range providers {
		keys := make([]string, 0, len(p.Keys))
		for _, k := range p.Keys {
			text := k.Prefix
			if k.CoolingSeconds > 0 {
				text += fmt.Sprintf(" (%d, left alone for %.0f s)", k.Status, k.CoolingSeconds)
			}
			keys = append(keys, text)
		}
		busy := fmt.Sprint(p.InFlight)
		if p.Parallel > 0 {
			busy += fmt.Sprintf("/%d", p.Parallel)
		}
		rows = append(rows, []string{p.Name, p.URL, orDash(strings.Join(keys, ", ")), orDash(joinComma(p.Models)),
			fmt.Sprint(p.Priority), p.UseForHeld, p.Certificate, orDash(sponsorText(p)), busy, orDash(p.Problem)})
	}
	table(w, []string{"PROVIDER", "URL", "KEYS", "MODELS", "PRIORITY", "HELD", "CERTIFICATE", "HOST OF", "BUSY", "PROBLEM"}, rows,
		"no providers; set one with: llmgw providers set NAME --url URL --key-file FILE --models PATTERN")
}

// sponsorText is the node that a host belongs to, and what the host runs.
func sponsorText(p ui.Provider) string {
	text := p.Sponsor
	if p.Kind != "" {
		text += " (" + p.Kind + ")"
	}
	if p.Direct {
		text += ", direct"
	}
	return text
}

func removeProvider(cmd *cobra.Command, args []string) error {
	return withDaemon(cmd, func(c *ui.Client) error {
		if err := c.RemoveProvider(cmd.Context(), args[0]); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s is removed\n", args[0])
		return nil
	})
}

func testProvider(cmd *cobra.Command, args []string) error {
	return withDaemon(cmd, func(c *ui.Client) error {
		t, err := c.TestProvider(cmd.Context(), ui.Named{Name: args[0]})
		if err != nil {
			return err
		}
		if err := show(cmd, t, func(w io.Writer) { printProviderTest(w, t) }); err != nil {
			return err
		}
		if t.Problem != "" {
			return errors.New(t.Problem)
		}
		return nil
	})
}

func printProviderTest(w io.Writer, t ui.ProviderTest) {
	fmt.Fprintf(w, "%s\n", t.URL)
	if t.Address != "" {
		fmt.Fprintf(w, "connected to %s in %.0f ms\n", t.Address, t.ConnectMs)
	}
	if c := t.Certificate; c != nil {
		checked := "checked"
		if !c.Checked {
			checked = "NOT CHECKED"
		}
		if t.Address == "" {
			checked = "refused"
		}
		fmt.Fprintf(w, "certificate %s: of %s, by %s, until %s, SHA-256 %s\n", checked, c.Subject, c.Issuer, c.Expires, c.SHA256)
	}
	for _, k := range t.Keys {
		result := fmt.Sprintf("status %d in %.0f ms", k.Status, k.AnswerMs)
		if k.Problem != "" {
			result = k.Problem
		}
		fmt.Fprintf(w, "key %s: %s\n", orDash(k.Prefix), result)
	}
	if len(t.Models) > 0 {
		fmt.Fprintf(w, "it lists %d models, of which requests may ask for %d: %s\n", len(t.Models), len(t.Serves), orDash(shortNames(t.Serves)))
	}
	if t.Hint != "" {
		fmt.Fprintln(w, t.Hint)
	}
}

// shortNames lists some names.
func shortNames(names []string) string {
	const most = 20
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
