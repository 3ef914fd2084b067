package agent

import (
	"fmt"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// decodeStored decodes a resource from the state file.
func (a *Agent) decodeStored(b []byte) (*resource.Resource, error) {
	rs, faults := a.internal.Decode("", b)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	if len(rs) != 1 {
		return nil, fmt.Errorf("the stored value has %d resources instead of one", len(rs))
	}
	return rs[0], nil
}

// streams passes the streams of Envoys to their observers.
type streams struct{ a *Agent }

// Opened implements [ads.StreamHandler].
func (s streams) Opened(st access.Stream) error {
	if err := s.a.presence.Opened(st); err != nil {
		return err
	}
	err := s.a.envoys.Opened(st)
	if err != nil {
		s.a.presence.Closed(st)
		return err
	}
	s.a.redirects.Opened(st)
	return nil
}

// Closed implements [ads.StreamHandler].
func (s streams) Closed(st access.Stream) {
	s.a.redirects.Closed(st)
	s.a.envoys.Closed(st)
	s.a.presence.Closed(st)
}

// ackedInbounds passes the inbounds that an Envoy serves to the owner of their states.
func (a *Agent) ackedInbounds(ref node.Ref, process *access.Process, listeners []string) {
	if ref.Type != node.ProxyDataplane {
		return
	}
	id := ""
	if process != nil {
		id = process.ID
	}
	a.presence.Acked(ref.Key(), id, listeners)
}
