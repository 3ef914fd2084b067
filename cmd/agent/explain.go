package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func (a *app) explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Say why a proxy behaves as it does",
		Example: "  nearside explain connection --from web --to backend:80\n" +
			"  nearside explain policy meshtimeout/slow --dataplane web",
		Args: group,
		RunE: help,
	}
	cmd.AddCommand(a.explainConnectionCommand(), a.explainRequestCommand(), a.explainPolicyCommand(),
		a.explainDNSCommand())
	return cmd
}

func (a *app) explainPolicyCommand() *cobra.Command {
	var files fileFlags
	var dataplane, backend string
	cmd := &cobra.Command{
		Use:   "policy TYPE/NAME --dataplane NAME",
		Short: "Say what a policy does on a dataplane, or why it does nothing",
		Long: `Says whether a policy selects a dataplane, which of its fields are in force on which inbounds and outbounds, what
has overridden the others, and what is without effect. When the policy does not act on the dataplane, it says why not.

Where permissions restrict what proxies reach, a permission is told with the services that the dataplane reaches by it or
not, and --backend adds what decides about one service.

The exit code is 0 when the policy is selected and 2 when it is not. With -f the answer is computed from these resources
alone, without any agent and by the same code; the zone is then NEARSIDE_NODE_ZONE.`,
		Example: `  nearside explain policy meshtimeout/slow --dataplane web
  nearside explain policy mt slow --dataplane web -m shop -o json
  nearside explain policy mt/slow --dataplane web -f resources/`,
		Args:              args(1, 2, "TYPE/NAME or TYPE NAME"),
		ValidArgsFunction: a.completeTypeAndName,
	}
	a.meshFlag(cmd)
	files.add(cmd, "compute offline from these resources")
	cmd.Flags().StringVar(&dataplane, "dataplane", "", "name of the dataplane; required")
	cmd.Flags().StringVar(&backend, "backend", "",
		"service of which is said whether the dataplane reaches it: NAME, KIND/NAME or KIND/NAME:PORT")
	a.completeDataplanes(cmd, "dataplane")
	format := outputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if dataplane == "" {
			return usagef("--dataplane is required")
		}
		var r reference
		var err error
		if len(files.paths) > 0 {
			r, err = a.referenceAmong(args, func() ([]client.Kind, error) { return offline.Kinds(), nil })
		} else {
			r, err = a.reference(cmd.Context(), args)
		}
		if err != nil {
			return err
		}
		if !r.kind.Policy {
			return usagef("%s is not a kind of policy", r.kind.Kind)
		}
		q := client.PolicyQuestion{Type: r.kind.Kind, Mesh: a.mesh, Name: r.name, Dataplane: dataplane, Backend: backend}
		return show(a, *format, func(x *client.PolicyExplanation) error {
			err := a.policyText(x)
			if err == nil && x.Reach != nil {
				printLine(a.stdout)
				err = reachText(a.stdout, x.Reach, backend)
			}
			return err
		}, func(x *client.PolicyExplanation) bool { return !x.Selected })(
			answer(a, &files, func() (*client.PolicyExplanation, error) {
				return a.client().ExplainPolicy(cmd.Context(), q)
			}, func(o *offline.Offline, zone string) (*client.PolicyExplanation, []string, error) {
				x, err := o.ExplainPolicy(zone, q)
				return x, nil, err
			}))
	}
	return cmd
}

// policyText writes an explanation for people.
func (a *app) policyText(x *client.PolicyExplanation) error {
	verdict := "not selected"
	switch {
	case x.Selected && x.Effect == "all":
		verdict = "selected, all of it is in force"
	case x.Selected && x.Effect == "part":
		verdict = "selected, part of it is in force"
	case x.Selected:
		verdict = "selected, nothing of it is in force"
	}
	printf(a.stdout, "%s on %s: %s\n  %s\n", x.Policy, x.Dataplane, verdict, x.Reason)
	if len(x.Inbounds) > 0 {
		printf(a.stdout, "  inbounds: %s\n", strings.Join(each(x.Inbounds, inboundPort), ", "))
	}
	for i := range x.Items {
		it := &x.Items[i]
		printf(a.stdout, "\n%s", it.Field)
		if it.About != "" {
			printf(a.stdout, ", %s", it.About)
		}
		if it.Reason != "" {
			printf(a.stdout, ": no effect: %s", it.Reason)
		}
		printLine(a.stdout)
		p := rulePrinter{w: a.stdout}
		for j := range it.Places {
			placeText(&p, &it.Places[j])
		}
		if err := p.flush(); err != nil {
			return err
		}
	}
	if len(x.Warnings) > 0 {
		printLine(a.stdout)
	}
	for _, w := range x.Warnings {
		printf(a.stdout, "warning: %s\n", w)
	}
	return nil
}

// placeText writes what an item does at one place.
func placeText(out *rulePrinter, p *client.PolicyPlace) {
	names := texts(p.Outbounds)
	about := "the proxy"
	switch p.On {
	case "inbound":
		about = fmt.Sprintf("inbound %d, from %s", p.Inbound.Port, clientsText(p.Matchers, p.Match, p.Match != nil))
		if p.Route != "" {
			about += ", requests of the route " + p.Route
		}
	case "outbounds":
		about = "outbounds " + some(names)
	case "route":
		about = "route " + p.Route
		if len(names) > 0 {
			about += " of " + some(names)
		}
	}
	var b strings.Builder
	t := newTable(&b, "    FIELD", "VALUE", "STATE")
	for _, f := range p.Fields {
		by := each(f.By, func(s client.Source) string { return s.Type + "/" + place(s) })
		t.row("    "+cmp.Or(f.Path, "(whole)"), valueText(f.Value), fieldState(f.Effect, strings.Join(by, ", ")))
	}
	_ = t.Flush() // a strings.Builder takes everything
	out.add("on "+about, b.String())
}

// fieldState says what became of a field, with what else sets it.
func fieldState(effect, by string) string {
	switch {
	case effect == "all" && by == "":
		return "in force"
	case effect == "all":
		return "in force, joined with " + by
	case effect == "part":
		return "in force in part, joined with " + by
	case by == "":
		return "not in force"
	}
	return "overridden by " + by
}
