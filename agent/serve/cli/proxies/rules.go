package proxies

import (
	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// inspectRules is inspect dataplane --type=rules.
func inspectRules(env *command.Env, cmd *cobra.Command, in *inspection, name, format string) error {
	diff, err := in.includes("diff", "diff", "fields")
	if err != nil {
		return err
	}
	fields, _ := in.includes("fields", "diff", "fields")
	fields = fields || format == "table"
	doc, err := command.Answer(env, &in.files, func() (*explain.Rules, error) {
		var include []string
		if diff {
			include = append(include, "diff")
		}
		if fields {
			include = append(include, "fields")
		}
		return env.Client().Rules(cmd.Context(), env.Mesh, name, in.shadow, include...)
	}, func(o *offline.Offline, zone string) (*explain.Rules, []string, error) {
		return o.Rules(zone, env.Mesh, name, explain.RulesOptions{Shadow: in.shadow, Diff: diff, Fields: fields})
	})
	return command.Show(env, format, func(doc *explain.Rules) error {
		if err := text.Rules(env.Stdout, doc); err != nil || !diff {
			return err
		}
		return inspectDiff(cmd.Context(), env, in, name, len(doc.Diff), func(p *api.ProxyDiff) {
			text.RuleItems(env.Stdout, &p.Rules)
		})
	}, nil)(doc, err)
}

// inspectPolicies is inspect dataplane --type=policies.
func inspectPolicies(env *command.Env, cmd *cobra.Command, in *inspection, name, format string) error {
	doc, err := command.Answer(env, &in.files, func() (*explain.Policies, error) {
		return env.Client().Policies(cmd.Context(), env.Mesh, name, in.backend)
	}, func(o *offline.Offline, zone string) (*explain.Policies, []string, error) {
		return o.Policies(zone, env.Mesh, name, in.backend)
	})
	return command.Show(env, format, func(doc *explain.Policies) error {
		return policiesText(env, doc, in.backend)
	}, nil)(doc, err)
}

// policiesText writes the policies that select a dataplane, and what it reaches.
func policiesText(env *command.Env, doc *explain.Policies, backend string) error {
	t := text.NewTable(env.Stdout, "KIND", "NAME", "EFFECT", "INBOUNDS", "OUTBOUNDS", "REASON")
	for _, p := range doc.Items {
		in := text.Each(p.Inbounds, text.InboundPort)
		if p.Gateway {
			in = append(in, "gateway")
		}
		t.Row(p.Type, p.Name, p.Effect, text.Some(in), text.Some(text.Texts(p.Outbounds)), p.Reason)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range doc.Items {
		for _, warning := range p.Warnings {
			text.Printf(env.Stdout, "warning: %s/%s: %s\n", p.Type, p.Name, warning)
		}
	}
	text.Println(env.Stdout)
	return text.Reach(env.Stdout, doc.Reach, backend)
}
