package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"llmgw/ui"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// asRequest gives what `providers set` would send.
func asRequest(t *testing.T, stdin string, args ...string) (ui.ProviderRequest, error) {
	t.Helper()
	var f providerFlags
	var r ui.ProviderRequest
	cmd := &cobra.Command{Use: "set", SilenceUsage: true, SilenceErrors: true, RunE: func(cmd *cobra.Command, args []string) (err error) {
		r, err = f.request(cmd, args[0])
		return err
	}}
	f.add(cmd)
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	err := cmd.Execute()
	return r, err
}

func TestProviderRequestsNameWhatWasGiven(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("\n sk-one \nsk-two\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(v string) *string { return &v }
	yes, seven, none := true, 7, ui.List[string]{}
	for name, c := range map[string]struct {
		stdin string
		args  []string
		want  ui.ProviderRequest
	}{
		"keys of a file":      {"", []string{"--key-file", file}, ui.ProviderRequest{Keys: &ui.List[string]{"sk-one", "sk-two"}}},
		"keys of stdin":       {"sk-three\n", []string{"--key-file", "-"}, ui.ProviderRequest{Keys: &ui.List[string]{"sk-three"}}},
		"no keys":             {"", []string{"--no-keys"}, ui.ProviderRequest{Keys: &none}},
		"the system's again":  {"", []string{"--ca-file", ""}, ui.ProviderRequest{CA: at("")}},
		"a CA":                {"", []string{"--ca-file", file}, ui.ProviderRequest{CA: at("\n sk-one \nsk-two\n\n")}},
		"used for held":       {"", []string{"--use-for-held"}, ui.ProviderRequest{UseForHeld: at("last")}},
		"used as an equal":    {"", []string{"--use-for-held=equal"}, ui.ProviderRequest{UseForHeld: at("equal")}},
		"models and the rest": {"", []string{"--models", "a*,b=c", "--url", "https://x", "--insecure", "--allow-private", "--parallel", "7", "--priority", "7"}, ui.ProviderRequest{Models: &ui.List[string]{"a*", "b=c"}, URL: at("https://x"), Insecure: &yes, AllowPrivate: &yes, Parallel: &seven, Priority: &seven}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := asRequest(t, c.stdin, append([]string{"p"}, c.args...)...)
			c.want.Name = "p"
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
	for name, args := range map[string][]string{
		"nothing": {"p"}, "no such file": {"p", "--key-file", filepath.Join(t.TempDir(), "gone")}, "an empty one": {"p", "--key-file", "-"},
		"both": {"p", "--key-file", file, "--no-keys"}, "a key as a flag": {"p", "--key", "sk-x"},
	} {
		if got, err := asRequest(t, "", args...); err == nil {
			t.Errorf("%s was taken: %+v", name, got)
		}
	}
}

func TestProvidersAreShown(t *testing.T) {
	var out bytes.Buffer
	printProviders(&out, []ui.Provider{{
		Name: "openai", URL: "https://a.example/v1", Keys: []ui.ProviderKey{{Prefix: "sk-abc…", CoolingSeconds: 17, Status: 429}, {Prefix: "sk-def…"}},
		Models: []string{"gpt-*", "fast=x"}, UseForHeld: "never", Certificate: "unchecked", Parallel: 4, InFlight: 3,
	}})
	for _, want := range []string{"sk-abc… (429, left alone for 17 s), sk-def…", "gpt-*,fast=x", "unchecked", "3/4", "never"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %s", want, out.String())
		}
	}
	out.Reset()
	printProviderTest(&out, ui.ProviderTest{
		URL: "https://a.example/v1/models", Certificate: &ui.ProviderCertificate{Subject: "CN=a", Checked: true}, Hint: "--ca-file FILE",
		Problem: "refused",
	})
	if got := out.String(); !strings.Contains(got, "certificate refused: of CN=a") || !strings.Contains(got, "--ca-file FILE") {
		t.Errorf("a refused certificate is shown as %s", got)
	}
}
