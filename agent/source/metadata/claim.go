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

// admit returns the Dataplane of a stream if its peer may provide it. If not, the stream is
// refused, unless a file or the API has a Dataplane of that name: then that one is used and want is
// ignored.
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
		s.o.Log.Warn("the Dataplane in a node's metadata is not used", "node", st.Key.ID, "peer", st.Peer.String(),
			"reason", err.Error())
		return nil, nil
	}
	return nil, status.Error(codes.PermissionDenied, clip.Text(st.Peer.String()+": "+err.Error(), maxStatusBytes))
}

// Examine returns whether the node metadata has a Dataplane, and an error if a stream would be
// refused because of it. Nothing is stored.
func (s *Source) Examine(st access.Stream) (brought bool, err error) {
	want, err := s.decode(st.Key.ID, st.Node)
	if err != nil || want == nil {
		return false, err
	}
	services, tags := claims(want)
	if err := st.Grant.Claim(services, tags); err != nil {
		if rec, ok := s.o.Store.Snapshot().Get(want.Key); ok && rec.Source.Kind != store.SourceEnvoy {
			return false, nil // the stored one is used
		}
		return false, err
	}
	return true, nil
}

// claims returns the services that a Dataplane claims, and its other tags and labels as KEY=VALUE,
// in order.
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
