package ads

import (
	"context"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
)

// The stream handlers keep the request of a response only for its type URL, so one per type serves
// all streams and no request stays in memory.
type stubRequests struct {
	sotw  [draft.NumTypes]*discovery.DiscoveryRequest
	delta [draft.NumTypes]*discovery.DeltaDiscoveryRequest
}

func newStubRequests() *stubRequests {
	s := &stubRequests{}
	for rank, url := range draft.Types {
		s.sotw[rank] = &discovery.DiscoveryRequest{TypeUrl: url}
		s.delta[rank] = &discovery.DeltaDiscoveryRequest{TypeUrl: url}
	}
	return s
}

// noResources is what the handlers are told of the resources that a client has: the watch knows it
// better. The map is fresh each time because a handler may write to it.
func noResources() map[string]string { return map[string]string{} }

// deltaResponse is a response as the delta handler wants it.
type deltaResponse struct {
	st *adsStream
	t  *rollout.Response
}

var _ cache.DeltaResponse = deltaResponse{}

// GetDeltaDiscoveryResponse makes the response without its resources, which [adsStream.deliver]
// adds.
func (r deltaResponse) GetDeltaDiscoveryResponse() (*discovery.DeltaDiscoveryResponse, error) {
	r.st.sending = r.t
	return &discovery.DeltaDiscoveryResponse{TypeUrl: draft.Types[r.t.Rank], SystemVersionInfo: r.t.Version,
		RemovedResources: r.t.Removed}, nil
}

func (r deltaResponse) GetDeltaRequest() *discovery.DeltaDiscoveryRequest {
	return r.st.srv.stubs.delta[r.t.Rank]
}
func (r deltaResponse) GetSystemVersion() (string, error)       { return r.t.Version, nil }
func (r deltaResponse) GetResponseVersion() string              { return r.t.Version }
func (r deltaResponse) GetNextVersionMap() map[string]string    { return noResources() }
func (r deltaResponse) GetReturnedResources() map[string]string { return noResources() }
func (r deltaResponse) GetContext() context.Context             { return r.st.ctx }

// sotwResponse is a response as the state-of-the-world handler wants it.
type sotwResponse struct {
	st *adsStream
	t  *rollout.Response
}

var _ cache.Response = sotwResponse{}

// GetDiscoveryResponse makes the response without its resources, which [adsStream.deliver] adds.
func (r sotwResponse) GetDiscoveryResponse() (*discovery.DiscoveryResponse, error) {
	r.st.sending = r.t
	return &discovery.DiscoveryResponse{TypeUrl: draft.Types[r.t.Rank], VersionInfo: r.t.Version}, nil
}

func (r sotwResponse) GetRequest() *discovery.DiscoveryRequest {
	return r.st.srv.stubs.sotw[r.t.Rank]
}
func (r sotwResponse) GetVersion() (string, error)             { return r.t.Version, nil }
func (r sotwResponse) GetResponseVersion() string              { return r.t.Version }
func (r sotwResponse) GetReturnedResources() map[string]string { return noResources() }
func (r sotwResponse) GetContext() context.Context             { return r.st.ctx }
