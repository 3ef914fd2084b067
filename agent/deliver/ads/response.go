package ads

import (
	"context"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
)

// The stream handlers store the request of a response for its type URL. One request per type for
// all streams avoids that they store the requests of clients.
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

// noResources returns the resources of a client for the handlers: none, because package rollout
// tracks them. It returns a new map, because a handler may write to it.
func noResources() map[string]string { return map[string]string{} }

// deltaResponse adapts a response to the delta handler.
type deltaResponse struct {
	st *adsStream
	t  *rollout.Response
}

var _ cache.DeltaResponse = deltaResponse{}

// GetDeltaDiscoveryResponse returns the response without its resources, which [adsStream.deliver]
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

// sotwResponse adapts a response to the state-of-the-world handler.
type sotwResponse struct {
	st *adsStream
	t  *rollout.Response
}

var _ cache.Response = sotwResponse{}

// GetDiscoveryResponse returns the response without its resources, which [adsStream.deliver] adds.
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
