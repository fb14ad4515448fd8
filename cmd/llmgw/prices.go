package main

import (
	"fmt"
	"io"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

// priceFlags are the flags of prices with their kinds.
func priceFlags() [][3]string {
	return [][3]string{
		{"input", "input", "a million prompt tokens"},
		{"cached-input", "cached_input", "a million prompt tokens read from a cache (default as --input)"},
		{"cache-write", "cache_write", "a million prompt tokens written to a cache (default as --input)"},
		{"output", "output", "a million answer tokens"},
		{"audio-input", "audio_input", "a million tokens of audio heard (default as --input)"},
		{"audio-output", "audio_output", "a million tokens of audio spoken (default as --output)"},
		{"image", "image", "one picture"},
	}
}

func newPrices() *cobra.Command {
	cmd := &cobra.Command{
		Use: "prices", Short: "Set, list and unset what models cost", Args: exactly(0, ""), RunE: listPrices,
		Long: `Set, list and unset what models cost. Prices are in any one unit of money, with six digits
behind the point at most; budgets are counted in the same. The price of a provider's model
goes before that of the provider, and that before that of the model. A model without a price
costs nothing.

Examples:
  llmgw prices set smollm2 --input 0.05 --cached-input 0.01 --output 0.20
  llmgw prices set --provider openai --input 2.5 --output 10
  llmgw prices set gpt-4o --provider openai --input 2.5 --output 10
  llmgw prices unset smollm2`,
	}
	cmd.AddCommand(newPriceSet(), newPriceUnset(),
		&cobra.Command{Use: "ls", Short: "List the price table", Args: exactly(0, ""), RunE: listPrices})
	return cmd
}

func newPriceSet() *cobra.Command {
	var provider string
	cmd := &cobra.Command{
		Use: "set [MODEL]", Short: "Set prices of a model, a provider or a provider's model; others stay", Args: atMostOneModel,
		RunE: func(cmd *cobra.Command, args []string) error {
			r := ui.Price{Model: first(args), Provider: provider}
			for _, flag := range priceFlags() {
				value, given, err := amountFlag(cmd, flag[0], parseMoney)
				switch {
				case err != nil:
					return err
				case given && value == nil:
					return usagef("--%s none: unset the whole row with llmgw prices unset, or give 0", flag[0])
				case given:
					r.Micros = append(r.Micros, ui.Micro{Kind: flag[1], Value: *value})
				}
			}
			if len(r.Micros) == 0 {
				return usagef("llmgw prices set needs a price, as --input 0.05; see llmgw prices set --help")
			}
			return send(cmd, (*ui.Client).SetPrice, r, func(w io.Writer, a ui.PriceAnswer) { showPrices(w, []ui.Price{a.Price}) })
		},
	}
	for _, flag := range priceFlags() {
		cmd.Flags().String(flag[0], "", "price of "+flag[2])
	}
	cmd.Flags().StringVar(&provider, "provider", "", "provider outside the mesh that it is for")
	return cmd
}

func newPriceUnset() *cobra.Command {
	var provider string
	cmd := &cobra.Command{
		Use: "unset [MODEL]", Short: "Take a row out of the price table", Args: atMostOneModel,
		RunE: func(cmd *cobra.Command, args []string) error {
			r := ui.Price{Model: first(args), Provider: provider}
			return send(cmd, (*ui.Client).RemovePrice, r, func(w io.Writer, a ui.PriceAnswer) {
				fmt.Fprintf(w, "model %s, provider %s: no price\n", orDash(a.Price.Model), orDash(a.Price.Provider))
			})
		},
	}
	cmd.Flags().StringVar(&provider, "provider", "", "provider that it is for")
	return cmd
}

func atMostOneModel(cmd *cobra.Command, args []string) error {
	provider, _ := cmd.Flags().GetString("provider")
	if len(args) > 1 || len(args) == 0 && provider == "" {
		return usagef("%s needs a model, --provider or both; see %s --help", cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func listPrices(cmd *cobra.Command, _ []string) error {
	return ask(cmd, (*ui.Client).Prices, func(w io.Writer, list ui.PriceList) { showPrices(w, list.Prices) })
}

func showPrices(w io.Writer, prices []ui.Price) {
	header := []string{"MODEL", "PROVIDER", "INPUT", "CACHED", "WRITE", "OUTPUT", "AUDIO IN", "AUDIO OUT", "IMAGE"}
	var rows [][]string
	for _, p := range prices {
		row := []string{orDash(p.Model), orDash(p.Provider)}
		for _, flag := range priceFlags() {
			text := "-"
			for _, m := range p.Micros {
				if m.Kind == flag[1] {
					text = moneyText(m.Value)
				}
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	table(w, header, rows, "no prices; set one with: llmgw prices set MODEL --input 0.05 --output 0.20")
}
