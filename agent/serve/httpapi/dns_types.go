package httpapi

import (
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// DNSState is how the resolver stands, and what it answers by itself.
type DNSState struct {
	api.DNSStatus
	Table *names.Table // nil: none was made yet
	// Search, Ndots: those of the resolv.conf of the agent.
	Search []string
	Ndots  int
}
