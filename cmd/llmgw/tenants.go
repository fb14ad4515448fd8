package main

import (
	"fmt"
	"io"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newTenants() *cobra.Command {
	cmd := &cobra.Command{Use: "tenants", Short: "Make, list, change and remove tenants, whom projects count for", Args: exactly(0, ""), RunE: listTenants}
	cmd.AddCommand(
		tenantVerb("new NAME", "Make a tenant", "llmgw tenants new acme --rpm 6000 --budget-month 500 --hard", (*ui.Client).NewTenant, false),
		tenantVerb("set NAME", "Change a tenant's limits and budgets; what is not named stays", "llmgw tenants set acme --rpm none", (*ui.Client).SetTenant, true),
		&cobra.Command{Use: "ls", Short: "List the tenants", Args: exactly(0, ""), RunE: listTenants},
		removeVerb("tenant", "Remove a tenant that has no project", (*ui.Client).RemoveTenant))
	return cmd
}

func tenantVerb(use, short, example string, call clientCall[ui.TenantRequest, ui.TenantAnswer], change bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: short + ".\n\n" + rulesHelp + "\n\nExamples:\n  " + example, Args: exactly(1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			rules, err := rulesGiven(cmd, change)
			if err != nil {
				return err
			}
			return send(cmd, call, ui.TenantRequest{Name: args[0], RulesChange: rules}, func(w io.Writer, r ui.TenantAnswer) {
				fmt.Fprintf(w, "tenant %s: limits %s; budgets %s\n", r.Tenant.Name, limitsText(r.Tenant.Rules), budgetsText(r.Tenant.Rules))
			})
		},
	}
	addRuleFlags(cmd)
	return cmd
}

// rulesGiven is what the flags say of rules. A change needs something to change.
func rulesGiven(cmd *cobra.Command, change bool) (ui.RulesChange, error) {
	rules, err := ruleChange(cmd)
	if err == nil && change {
		err = somethingGiven(cmd)
	}
	return rules, err
}

// somethingGiven refuses a change by no flag at all.
func somethingGiven(cmd *cobra.Command) error {
	if cmd.Flags().NFlag() == 0 {
		return usagef("%s needs something to change; see %s --help", cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}

func listTenants(cmd *cobra.Command, _ []string) error {
	return ask(cmd, (*ui.Client).Tenants, func(w io.Writer, list ui.TenantList) {
		var rows [][]string
		for _, t := range list.Tenants {
			rows = append(rows, []string{t.Name, limitsText(t.Rules), budgetsText(t.Rules)})
		}
		table(w, []string{"TENANT", "LIMITS", "BUDGETS"}, rows, "no tenants; make one with: llmgw tenants new NAME")
	})
}

func newProjects() *cobra.Command {
	cmd := &cobra.Command{Use: "projects", Short: "Make, list, change and remove projects, whom API keys count for", Args: exactly(0, ""), RunE: listProjects}
	cmd.AddCommand(
		projectVerb("new NAME", "Make a project", "llmgw projects new web --tenant acme --tpm 200k", (*ui.Client).NewProject, false),
		projectVerb("set NAME", "Change a project; what is not named stays", "llmgw projects set web --tenant \"\" --tpm 400k", (*ui.Client).SetProject, true),
		&cobra.Command{Use: "ls", Short: "List the projects", Args: exactly(0, ""), RunE: listProjects},
		removeVerb("project", "Remove a project that has no key", (*ui.Client).RemoveProject))
	return cmd
}

func projectVerb(use, short, example string, call clientCall[ui.ProjectRequest, ui.ProjectAnswer], change bool) *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use: use, Short: short, Long: short + ".\n\n" + rulesHelp + "\n\nExamples:\n  " + example, Args: exactly(1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			rules, err := rulesGiven(cmd, change)
			if err != nil {
				return err
			}
			r := ui.ProjectRequest{Name: args[0], RulesChange: rules}
			if cmd.Flags().Changed("tenant") {
				r.Tenant = &tenant
			}
			return send(cmd, call, r, func(w io.Writer, r ui.ProjectAnswer) {
				fmt.Fprintf(w, "project %s: tenant %s; limits %s; budgets %s\n", r.Project.Name, orDash(r.Project.Tenant),
					limitsText(r.Project.Rules), budgetsText(r.Project.Rules))
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "tenant that it counts for")
	addRuleFlags(cmd)
	return cmd
}

func listProjects(cmd *cobra.Command, _ []string) error {
	return ask(cmd, (*ui.Client).Projects, func(w io.Writer, list ui.ProjectList) {
		var rows [][]string
		for _, p := range list.Projects {
			rows = append(rows, []string{p.Name, orDash(p.Tenant), orDash(joinComma(p.Keys)), limitsText(p.Rules), budgetsText(p.Rules)})
		}
		table(w, []string{"PROJECT", "TENANT", "KEYS", "LIMITS", "BUDGETS"}, rows, "no projects; make one with: llmgw projects new NAME")
	})
}

func removeVerb(kind, short string, call clientCall[ui.Named, ui.Named]) *cobra.Command {
	return &cobra.Command{Use: "rm NAME", Short: short, Args: exactly(1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return send(cmd, call, ui.Named{Name: args[0]}, func(w io.Writer, r ui.Named) { fmt.Fprintf(w, "%s %s is removed\n", kind, r.Name) })
		}}
}
