package proxies

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func explainCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Say why a proxy behaves as it does",
		Example: "  nearside explain connection --from web --to backend:80\n" +
			"  nearside explain policy meshtimeout/slow --dataplane web",
		Args: command.Group,
		RunE: command.Help,
	}
	cmd.AddCommand(explainConnectionCommand(env), explainRequestCommand(env), explainPolicyCommand(env),
		explainDNSCommand(env))
	return cmd
}

func explainPolicyCommand(env *command.Env) *cobra.Command {
	var files command.FileFlags
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
		Args:              command.Args(1, 2, "TYPE/NAME or TYPE NAME"),
		ValidArgsFunction: command.CompleteTypeAndName(env),
	}
	command.MeshFlag(env, cmd)
	files.Add(cmd, "compute offline from these resources")
	cmd.Flags().StringVar(&dataplane, "dataplane", "", "name of the dataplane; required")
	cmd.Flags().StringVar(&backend, "backend", "",
		"service of which is said whether the dataplane reaches it: NAME, KIND/NAME or KIND/NAME:PORT")
	command.CompleteDataplanes(env, cmd, "dataplane", &env.Mesh)
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if dataplane == "" {
			return command.Usagef("--dataplane is required")
		}
		var r command.Reference
		var err error
		if len(files.Paths) > 0 {
			r, err = command.ResolveAmong(env, args, func() ([]api.Kind, error) { return offline.Kinds(), nil })
		} else {
			r, err = command.Resolve(cmd.Context(), env, args)
		}
		if err != nil {
			return err
		}
		if !r.Kind.Policy {
			return command.Usagef("%s is not a kind of policy", r.Kind.Kind)
		}
		q := explain.PolicyQuestion{Type: r.Kind.Kind, Mesh: env.Mesh, Name: r.Name, Dataplane: dataplane, Backend: backend}
		return command.Show(env, *format, func(x *explain.Policy) error {
			err := policyText(env, x)
			if err == nil && x.Reach != nil {
				text.Println(env.Stdout)
				err = text.Reach(env.Stdout, x.Reach, backend)
			}
			return err
		}, func(x *explain.Policy) bool { return !x.Selected })(
			command.Answer(env, &files, func() (*explain.Policy, error) {
				return env.Client().ExplainPolicy(cmd.Context(), q)
			}, func(o *offline.Offline, zone string) (*explain.Policy, []string, error) {
				x, err := o.ExplainPolicy(zone, q)
				return x, nil, err
			}))
	}
	return cmd
}

// policyText writes an explanation for people.
func policyText(env *command.Env, x *explain.Policy) error {
	verdict := "not selected"
	switch {
	case x.Selected && x.Effect == "all":
		verdict = "selected, all of it is in force"
	case x.Selected && x.Effect == "part":
		verdict = "selected, part of it is in force"
	case x.Selected:
		verdict = "selected, nothing of it is in force"
	}
	text.Printf(env.Stdout, "%s on %s: %s\n  %s\n", x.Policy, x.Dataplane, verdict, x.Reason)
	if len(x.Inbounds) > 0 {
		text.Printf(env.Stdout, "  inbounds: %s\n", strings.Join(text.Each(x.Inbounds, text.InboundPort), ", "))
	}
	for i := range x.Items {
		it := &x.Items[i]
		text.Printf(env.Stdout, "\n%s", it.Field)
		if it.About != "" {
			text.Printf(env.Stdout, ", %s", it.About)
		}
		if it.Reason != "" {
			text.Printf(env.Stdout, ": no effect: %s", it.Reason)
		}
		text.Println(env.Stdout)
		p := text.RulePrinter{W: env.Stdout}
		for j := range it.Places {
			placeText(&p, &it.Places[j])
		}
		if err := p.Flush(); err != nil {
			return err
		}
	}
	if len(x.Warnings) > 0 {
		text.Println(env.Stdout)
	}
	for _, w := range x.Warnings {
		text.Printf(env.Stdout, "warning: %s\n", w)
	}
	return nil
}

// placeText writes what an item does at one place.
func placeText(out *text.RulePrinter, p *explain.Place) {
	names := text.Texts(p.Outbounds)
	about := "the proxy"
	switch p.On {
	case "inbound":
		about = fmt.Sprintf("inbound %d, from %s", p.Inbound.Port, text.ClientsText(p.Matchers, p.Match, p.Match != nil))
		if p.Route != "" {
			about += ", requests of the route " + p.Route
		}
	case "outbounds":
		about = "outbounds " + text.Some(names)
	case "route":
		about = "route " + p.Route
		if len(names) > 0 {
			about += " of " + text.Some(names)
		}
	}
	var b strings.Builder
	t := text.NewTable(&b, "    FIELD", "VALUE", "STATE")
	for _, f := range p.Fields {
		by := text.Each(f.By, func(s explain.Source) string { return s.Type + "/" + text.Place(s) })
		t.Row("    "+cmp.Or(f.Path, "(whole)"), text.ValueText(f.Value), fieldState(f.Effect, strings.Join(by, ", ")))
	}
	_ = t.Flush() // a strings.Builder takes everything
	out.Add("on "+about, b.String())
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
