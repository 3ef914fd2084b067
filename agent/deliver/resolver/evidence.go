package resolver

import (
	"context"

	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/dns/forward"
)

// askZone asks upstreams whether they have a suffix.
func (r *Resolver) askZone(ctx context.Context, suffix string) names.Evidence {
	switch r.forward.AskZone(ctx, suffix) {
	case forward.ZoneExists:
		return names.HasZone
	case forward.NameExists:
		return names.HasName
	case forward.NameUnknown:
		return names.HasNone
	}
	return names.NoAnswer
}
