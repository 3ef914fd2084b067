package agent

import (
	"github.com/nearside-mesh/nearside/agent/deliver/probes"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// newProbes creates the scheduler of probes of workloads.
func (a *Agent) newProbes() (err error) {
	a.probes, err = probes.New(probes.Options{
		Store: a.store, Peer: a.rollout.Peer, Result: a.presence.Probe, Log: a.log, Registry: a.deps.Metrics,
		Reach: func(mesh, name string) *resource.Reach { return a.envoys.Sidecars(mesh)[name] },
	})
	return err
}
