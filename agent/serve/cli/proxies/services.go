package proxies

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func inspectServicesCommand(env *command.Env) *cobra.Command {
	var all bool
	var files command.FileFlags
	cmd := &cobra.Command{
		Use:   "services",
		Short: "List the services of a mesh with their addresses, names and endpoints",
		Long: `Lists every service of a mesh as this node sees it: the values of kuma.io/service (ServiceTag), MeshServices, those that
are made of tags among them (they are in no list of resources), MeshExternalServices and MeshMultiZoneServices. ENDPOINTS
is how many take traffic, of how many, for each port. HOSTNAMES are those that a service has. Below the table stands what
services lack, and why.

With -f, the answer is computed from these resources alone, without any agent and by the same code; the zone is then
NEARSIDE_NODE_ZONE.`,
		Example: "  nearside inspect services\n  nearside inspect services -A -o wide\n" +
			"  nearside inspect services -f resources/ -o json",
		Args: command.Args(0, 0, "no arguments"),
	}
	command.MeshFlag(env, cmd)
	files.Add(cmd, "compute offline from these resources")
	cmd.Flags().BoolVarP(&all, "all-meshes", "A", false, "list those of all meshes")
	format := command.OutputFlag(cmd, "table", "wide", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		mesh := env.Mesh
		if all {
			mesh = ""
		}
		if all && len(files.Paths) > 0 {
			return command.Usagef("-f computes one mesh; leave -A out and name the mesh with -m")
		}
		list, err := command.Answer(env, &files, func() ([]api.Service, error) {
			return env.Client().Services(cmd.Context(), mesh, "", "")
		}, func(o *offline.Offline, zone string) ([]api.Service, []string, error) {
			list, err := o.Services(zone, mesh)
			return list, nil, err
		})
		if err != nil {
			return err
		}
		if ok, err := command.Printed(env, *format, serviceList{len(list), list}); ok {
			return err
		}
		if *format == "name" {
			for _, s := range list {
				text.Println(env.Stdout, text.TypeAndName(s.Kind, s.Name))
			}
			return nil
		}
		return serviceTable(env, list, *format == "wide")
	}
	return cmd
}

// serviceList is the whole list, as the pages of the API have it.
type serviceList struct {
	Total int           `json:"total"`
	Items []api.Service `json:"items"`
}

func serviceTable(env *command.Env, list []api.Service, wide bool) error {
	headers := []string{"MESH", "KIND", "NAME", "PORTS", "ENDPOINTS", "VIPS", "HOSTNAMES"}
	if wide {
		headers = append(headers, "CLUSTERS", "LABELS")
	}
	t := text.NewTable(env.Stdout, headers...)
	for _, s := range list {
		kind := s.Kind
		if s.Derived {
			kind += " (derived)"
		}
		cells := []string{s.Mesh, kind, s.Name, text.ServicePorts(&s), text.ServiceEndpoints(&s), text.ServiceVIPs(&s),
			text.ServiceNames(&s)}
		if wide {
			clusters := text.Each(s.Ports, func(p api.ServicePort) string { return p.Cluster })
			cells = append(cells, strings.Join(clusters, ","), text.Pairs(s.Labels))
		}
		t.Row(cells...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	serviceReasons(env, list)
	return nil
}

// serviceReasons writes what is not as it was to be.
func serviceReasons(env *command.Env, list []api.Service) {
	first := true
	say := func(s *api.Service, content string) {
		if first {
			text.Println(env.Stdout)
			first = false
		}
		text.Printf(env.Stdout, "%s/%s/%s: %s\n", s.Kind, s.Mesh, s.Name, text.OneLine(content))
	}
	for i := range list {
		s := &list[i]
		for _, r := range s.Reasons {
			say(s, r)
		}
		for _, h := range s.Hostnames {
			if h.Generated || h.Reason == mesh.HostnameCollision && len(s.Reasons) > 0 { // which are among the reasons
				continue
			}
			what := "no hostname"
			if h.Hostname != "" {
				what = "not the hostname " + h.Hostname
			}
			if h.Generator != "" {
				what += " by " + h.Generator
			}
			say(s, what+": "+h.Message)
		}
	}
}
