package envoyadmin_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// TestTraffic checks the counters of outbounds, clusters, and inbounds. Envoy also counts responses
// by the origin of requests and by zone, which are the same responses.
func TestTraffic(t *testing.T) {
	got, err := serve(t, text("server.uptime: 90\n"+
		"listener.127.0.0.1_7001.downstream_cx_total: 2\n"+
		"listener.127.0.0.1_7001.http.outbound_backend.downstream_rq_completed: 40\n"+
		"listener.127.0.0.1_7001.http.outbound_backend.downstream_rq_5xx: 3\n"+
		"listener.10.0.0.1_80.downstream_cx_total: 1\n"+
		"cluster.backend.upstream_rq_403: 4\ncluster.backend.external.upstream_rq_403: 4\n"+
		"cluster.backend.zone.east.west.upstream_rq_403: 4\ncluster.is.external.upstream_rq_403: 1\n"+
		"cluster.redis.upstream_cx_connect_fail: 8\ncluster.idle.upstream_cx_connect_fail: 0\n"+
		"inbound_10_0_0_1_6379.rbac.denied: 5\n",
		"outbound:127.0.0.1:7001::127.0.0.1:7001\ninbound:10.0.0.1:80::10.0.0.1:80\n")).Counts(t.Context())
	want := api.ProxyCounts{Uptime: 90 * time.Second,
		Listeners: map[string]api.ListenerTraffic{"outbound:127.0.0.1:7001": {Connections: 2, Requests: 40},
			"inbound:10.0.0.1:80": {Connections: 1}},
		Outbounds: map[string]api.OutboundCounts{"outbound:127.0.0.1:7001": {Connections: 2, Requests: 40, Failed: 3}},
		Clusters: map[string]api.ClusterCounts{"backend": {Refused: 4}, "is.external": {Refused: 1},
			"redis": {Unconnected: 8}},
		Denied: map[string]uint64{"6379": 5}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}
