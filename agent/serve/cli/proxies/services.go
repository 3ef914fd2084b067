package proxies

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func inspectServicesCommand(env *command.Env) *cobra.Command {
	var all bool
	var files command.FileFlags
	cmd := &cobra.Command{
		Use:   "services",
		Short: "List the services of a mesh with addresses, names, and endpoints",
		Long: `Lists every service of a mesh as this node sees it: values of kuma.io/service (ServiceTag),
MeshServices, MeshExternalServices, and MeshMultiZoneServices. It includes MeshServices that are
derived from tags, which are in no list of resources. ENDPOINTS is ready/total for each port.
HOSTNAMES are the generated names. Missing names, ports, and endpoints follow the table, with
reasons.

With -f, the answer comes only from these resources, without an agent; NEARSIDE_NODE_ZONE sets the
zone.`,
		Example: "  nearside inspect services\n  nearside inspect services -A -o wide\n" +
			"  nearside inspect services -f resources/ -o json",
	}
	command.MeshFlag(env, cmd)
	files.Add(cmd, "compute offline from these resources")
	cmd.Flags().BoolVarP(&all, "all-meshes", "A", false, "list all meshes")
	format := command.OutputFlag(cmd, "table", "wide", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if all && len(files.Paths) > 0 {
			return command.Usagef("-f computes one mesh; omit -A, and select the mesh with -m")
		}
		mesh := ""
		if !all {
			if err := command.SelectMesh(cmd.Context(), env, &files); err != nil {
				return err
			}
			mesh = env.Mesh
		}
		list, err := command.Answer(env, &files, func() ([]api.Service, error) {
			return env.Client().Services(cmd.Context(), mesh, "", "")
		}, func(o *offline.Offline, zone string) ([]api.Service, []string, error) {
			list, err := o.Services(zone, mesh)
			return list, nil, err
		})
		if err == nil && command.PrintedNames(env, *format, list, func(s api.Service) string {
			if all {
				return text.TypeAndName(s.Kind, s.Mesh+"/"+s.Name)
			}
			return text.TypeAndName(s.Kind, s.Name)
		}) {
			return nil
		}
		return command.Show(env, *format, func(w io.Writer, l serviceList) { text.Services(w, l.Items, *format == "wide") })(
			serviceList{len(list), list}, err)
	}
	return cmd
}

// serviceList is the whole list in the form of the API's pages.
type serviceList struct {
	Total int           `json:"total"`
	Items []api.Service `json:"items"`
}
