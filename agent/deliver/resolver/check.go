package resolver

import (
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/rotation"
)

// CheckConfig reports limits of the query log that are out of their bounds.
func CheckConfig(cfg *config.Config) (out resource.Faults) {
	if err := rotation.Limits(cfg.DNS.QueryLog.Rotation).Validate("dns.queryLog."); err != nil {
		out = append(out, resource.Fault{Reason: err.Error()})
	}
	return out
}
