package offline

import (
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Services lists the services of a mesh in a zone.
func (o *Offline) Services(zone, meshName string) ([]api.Service, error) {
	m, err := o.mesh(zone, meshName)
	if err != nil {
		return nil, err
	}
	return render.Services(m.View, render.ServicesOptions{}), nil
}
