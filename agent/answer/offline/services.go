package offline

import "github.com/nearside-mesh/nearside/agent/serve/httpapi"

// Services lists the services that a mesh in a zone would have.
func (o *Offline) Services(zone, meshName string) ([]httpapi.Service, error) {
	m, err := o.mesh(zone, meshName)
	if err != nil {
		return nil, err
	}
	return httpapi.ListServices(m.View, httpapi.ServicesOptions{}), nil
}
