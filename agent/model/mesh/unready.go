package mesh

import "github.com/nearside-mesh/nearside/agent/model/resource"

// Unready is an inbound that receives no traffic because of the state of its dataplane.
type Unready struct {
	Dataplane resource.Key
	State     *resource.EndpointState
}

// Unready returns the inbounds of the service that receive no traffic because an agent has observed
// that, in the order of dataplane names.
func (s *Service) Unready() (out []Unready) {
	for _, in := range s.from {
		if !in.behind && in.state.Excludes(in.spec.Port) && Ready(in.spec) &&
			(s.port == nil || matchesPort(in.spec, s.port)) {
			out = append(out, Unready{in.dp.Key, in.state})
		}
	}
	return out
}
