package proxies

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// hostsOf returns HOST:PORT for each name and port of a service.
func hostsOf(s *api.Service) (out []string) {
	hosts := []string{s.Name}
	for _, h := range s.Hostnames {
		if h.Generated {
			hosts = append(hosts, h.Hostname)
		}
	}
	for _, h := range hosts {
		for _, p := range s.Ports {
			out = append(out, fmt.Sprintf("%s:%d", h, p.Port))
		}
	}
	return out
}

// hosts returns HOST:PORT of all services that a prefix selects, sorted.
func hosts(list []api.Service, prefix string) (out []string) {
	for i := range list {
		for _, h := range hostsOf(&list[i]) {
			if strings.HasPrefix(h, prefix) {
				out = append(out, h)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// completeHosts completes HOST:PORT with the services of the mesh.
func completeHosts(env *command.Env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if command.SelectMesh(cmd.Context(), env, nil) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, err := env.Quick(command.CompletionTime).Services(cmd.Context(), env.Mesh, "", "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return hosts(list, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// withPort adds the port to the destination if it is a host without one: the only port of this name
// in the mesh, and otherwise the default port of the protocol.
func withPort(ctx context.Context, env *command.Env, f *flowFlags) (string, error) {
	to := f.target.To
	if to == "" || strings.ContainsAny(to, ":/[]") {
		return to, nil
	}
	list, err := command.Answer(env, &f.files, func() ([]api.Service, error) {
		return env.Client().Services(ctx, env.Mesh, "", "")
	}, func(o *offline.Offline, zone string) ([]api.Service, []string, error) {
		list, err := o.Services(zone, env.Mesh)
		return list, nil, err
	})
	if err != nil {
		return "", err
	}
	found := hosts(list, to+":")
	usual := to + ":80"
	switch {
	case len(found) == 1:
		return found[0], nil
	case f.http && (len(found) == 0 || slices.Contains(found, usual)):
		return usual, nil
	case len(found) > 1:
		return "", command.Usagef("--to: %q has several ports; give one of %s", to, strings.Join(found, ", "))
	}
	return to, nil // the answer explains the form
}
