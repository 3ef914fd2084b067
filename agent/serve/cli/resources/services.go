package resources

import (
	"context"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// isService reports whether a kind is a service, for which wide tables show computed fields.
func isService(k api.Kind) bool {
	return k.Kind == "MeshService" || k.Kind == "MeshExternalService" || k.Kind == "MeshMultiZoneService"
}

// serviceColumns adds columns with the computed addresses, hostnames, and endpoints of services.
func serviceColumns(ctx context.Context, env *command.Env, kind api.Kind, items []api.Item,
	own []column) ([]column, error) {
	mesh, name, err := onlyOne(items)
	if err != nil {
		return nil, err
	}
	list, err := env.Client().Services(ctx, mesh, kind.Kind, name)
	if err != nil {
		return nil, err
	}
	by := make(map[string]*api.Service, len(list))
	for i := range list {
		by[list[i].Mesh+"/"+list[i].Name] = &list[i]
	}
	for _, c := range []struct {
		header string
		cell   func(*api.Service) string
	}{{"ENDPOINTS", text.ServiceEndpoints}, {"VIPS", text.ServiceVIPs}, {"HOSTNAMES", text.ServiceNames}} {
		own = append(own, column{c.header, func(d *document) string {
			if s := by[d.Mesh+"/"+d.Name]; s != nil {
				return c.cell(s)
			}
			return "" // created after the agent's last computation
		}})
	}
	return own, nil
}
