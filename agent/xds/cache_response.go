package xds

import (
	"context"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/draft"
)

// The stream handlers keep the request of a response only for its type URL, so one per type serves all streams and no
// request stays in memory.
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

// noResources is what the handlers are told of the resources that a client has: the watch knows it better. The map
// is fresh each time because a handler may write to it.
func noResources() map[string]string { return map[string]string{} }

// deltaResponse is a ticket as the delta handler wants it.
type deltaResponse struct {
	st *adsStream
	t  *ticket
}

var _ cache.DeltaResponse = deltaResponse{}

// GetDeltaDiscoveryResponse makes the response; the bodies of the resources are used as they are.
func (r deltaResponse) GetDeltaDiscoveryResponse() (*discovery.DeltaDiscoveryResponse, error) {
	r.st.sending = r.t
	url := draft.Types[r.t.w.rank]
	out := make([]struct {
		res  discovery.Resource
		body anypb.Any
	}, len(r.t.send))
	resources := make([]*discovery.Resource, len(out))
	for i, res := range r.t.send {
		o := &out[i]
		o.body.TypeUrl, o.body.Value = url, res.Body()
		o.res.Name, o.res.Version, o.res.Resource = res.Name, res.Version, &o.body
		resources[i] = &o.res
	}
	return &discovery.DeltaDiscoveryResponse{
		TypeUrl: url, SystemVersionInfo: r.t.version, Resources: resources, RemovedResources: r.t.removed,
	}, nil
}

func (r deltaResponse) GetDeltaRequest() *discovery.DeltaDiscoveryRequest {
	return r.st.srv.stubs.delta[r.t.w.rank]
}
func (r deltaResponse) GetSystemVersion() (string, error)       { return r.t.version, nil }
func (r deltaResponse) GetResponseVersion() string              { return r.t.version }
func (r deltaResponse) GetNextVersionMap() map[string]string    { return noResources() }
func (r deltaResponse) GetReturnedResources() map[string]string { return noResources() }
func (r deltaResponse) GetContext() context.Context             { return r.st.ctx }

// sotwResponse is a ticket as the state-of-the-world handler wants it.
type sotwResponse struct {
	st *adsStream
	t  *ticket
}

var _ cache.Response = sotwResponse{}

// GetDiscoveryResponse makes the response; the bodies of the resources are used as they are.
func (r sotwResponse) GetDiscoveryResponse() (*discovery.DiscoveryResponse, error) {
	r.st.sending = r.t
	url := draft.Types[r.t.w.rank]
	out := make([]anypb.Any, len(r.t.send))
	resources := make([]*anypb.Any, len(out))
	for i, res := range r.t.send {
		out[i].TypeUrl, out[i].Value = url, res.Body()
		resources[i] = &out[i]
	}
	return &discovery.DiscoveryResponse{TypeUrl: url, VersionInfo: r.t.version, Resources: resources}, nil
}

func (r sotwResponse) GetRequest() *discovery.DiscoveryRequest {
	return r.st.srv.stubs.sotw[r.t.w.rank]
}
func (r sotwResponse) GetVersion() (string, error)             { return r.t.version, nil }
func (r sotwResponse) GetResponseVersion() string              { return r.t.version }
func (r sotwResponse) GetReturnedResources() map[string]string { return noResources() }
func (r sotwResponse) GetContext() context.Context             { return r.st.ctx }
