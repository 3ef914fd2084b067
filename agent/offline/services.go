package offline

import "github.com/nearside-mesh/nearside/agent/inspect"

// Services lists the services that a mesh in a zone would have.
func (o *Offline) Services(zone, meshName string) ([]inspect.Service, error) {
	m, err := o.mesh(zone, meshName)
	if err != nil {
		return nil, err
	}
	return inspect.ListServices(m.View, inspect.ServicesOptions{}), nil
}
