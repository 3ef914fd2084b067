package resources

import (
	"context"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// isService reports whether a kind is one of services, of which wide tables show what was computed.
func isService(k api.Kind) bool {
	return k.Kind == "MeshService" || k.Kind == "MeshExternalService" || k.Kind == "MeshMultiZoneService"
}

// serviceColumns adds what the agent has computed of services: addresses, names and endpoints.
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
			return "" // written since the agent last looked
		}})
	}
	return own, nil
}
