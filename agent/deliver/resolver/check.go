package resolver

import (
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// CheckConfig reports invalid limits of the query log.
func CheckConfig(cfg *config.Config) (out resource.Faults) {
	if err := cfg.DNS.QueryLog.Limits.Validate("dns.queryLog."); err != nil {
		out = append(out, resource.Fault{Reason: err.Error()})
	}
	return out
}
