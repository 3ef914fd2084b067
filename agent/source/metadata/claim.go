package metadata

import (
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// admit returns the Dataplane that a stream brings if its peer may bring it. Where a file or the
// API has a Dataplane of that name, one that may not be brought is left out: the stream is served
// by the one that is stored. Elsewhere the stream is refused.
func (s *Source) admit(st access.Stream, want *resource.Resource) (*resource.Resource, error) {
	if want == nil {
		return nil, nil
	}
	services, tags := claims(want)
	err := st.Grant.Claim(services, tags)
	if err == nil {
		return want, nil
	}
	if rec, ok := s.o.Store.Snapshot().Get(want.Key); ok && rec.Source.Kind != store.SourceEnvoy {
		s.o.Log.Warn("the Dataplane in the metadata of a node is not used", "node", st.Key.ID, "peer", st.Peer.String(),
			"reason", err.Error())
		return nil, nil
	}
	return nil, status.Error(codes.PermissionDenied, clip.Text(st.Peer.String()+": "+err.Error(), maxStatusBytes))
}

// claims returns the services that a Dataplane claims, and its other tags and labels as KEY=VALUE,
// sorted.
func claims(r *resource.Resource) (services, tags []string) {
	dp, ok := r.Spec.(*resource.Dataplane)
	if !ok {
		return nil, nil
	}
	sets := []map[string]string{r.Labels}
	if g := dp.Networking.Gateway; g != nil {
		sets = append(sets, g.Tags)
	}
	for i := range dp.Networking.Inbound {
		sets = append(sets, dp.Networking.Inbound[i].Tags)
	}
	for _, set := range sets {
		for _, key := range slices.Sorted(maps.Keys(set)) {
			if key == resource.TagService {
				services = append(services, set[key])
			} else {
				tags = append(tags, key+"="+set[key])
			}
		}
	}
	return services, tags
}
