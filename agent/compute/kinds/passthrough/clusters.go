package passthrough

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/dns/table"
)

// origin identifies the clusters in patches of Envoy's config.
const origin = "meshpassthrough"

const connectTimeout = 5 * time.Second

// pinned reports whether the proxy resolves the domain itself.
func (r *rule) pinned() bool { return r.resolved != "" || r.kind == domainTarget && r.port != 0 }

// resourceName returns the name of a cluster or chain in the form that Kuma's dashboards use.
func resourceName(p protocol, value string, port uint32) string {
	if p == mysql {
		p = tcp
	}
	on := "*"
	if port != 0 {
		on = strconv.FormatUint(uint64(port), 10)
	}
	if value != "" {
		value += "_"
	}
	return "meshpassthrough_" + p.String() + "_" + value + on
}

// newCluster returns the cluster of a rule.
func newCluster(r *rule, dp *resource.Dataplane) *draft.Cluster {
	out := &draft.Cluster{Kind: draft.PassthroughCluster, Origin: origin, Message: openCluster(r.name, r.stat)}
	switch {
	case r.pinned():
		pin(out.Message, r, dp)
	case r.forwarded():
		forward(out.Message, dp)
	}
	if r.protocol == http2 || r.protocol == grpc {
		out.HTTP = draft.HTTP2Options
	}
	if r.forwarded() && r.protocol.class() == requests {
		followName(out)
	}
	return out
}

// openCluster returns a cluster that connects to the address that the workload dialed.
func openCluster(name, stat string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		AltStatName:          stat,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST},
		LbPolicy:             clusterv3.Cluster_CLUSTER_PROVIDED,
		ConnectTimeout:       durationpb.New(connectTimeout),
	}
}

// closedCluster returns a cluster without endpoints, so that connections are closed explicitly
// instead of through a missing cluster.
func closedCluster(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		AltStatName:          toolkit.StatName(name),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(connectTimeout),
		LoadAssignment:       &endpointv3.ClusterLoadAssignment{ClusterName: name},
	}
}

// pin makes a cluster connect to the addresses of the rule's domain instead of the dialed address.
func pin(c *clusterv3.Cluster, r *rule, dp *resource.Dataplane) {
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
	c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
	c.WaitForWarmOnInit = wrapperspb.Bool(false) // a name that does not resolve must not delay the listener
	c.DnsLookupFamily = lookupFamily(dp)
	name := r.domain
	if r.resolved != "" {
		name = table.Passthrough(r.resolved)
	}
	c.LoadAssignment = &endpointv3.ClusterLoadAssignment{
		ClusterName: c.Name,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: name, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: r.port},
				}}},
			}},
		}}}},
	}
}

// If the Mesh routes external traffic through zone egresses, this includes the matches. The egress
// identifies a match by the server name of the mTLS connection between proxies. For a match with a
// single destination, an address or a domain on a given port, the egress has a cluster with this
// destination. For other matches, the proxy passes the dialed address in a tunnel (HTTP/2 CONNECT,
// RFC 9113 section 8.5), and the egress checks that it is within the addresses and port of the
// match.

// fixed reports whether the rule has a single destination.
func (r *rule) fixed() bool {
	return r.port != 0 && (r.kind == domainTarget || r.kind == addressTarget)
}

// maxServerName is the maximum length of a server name in Envoy, in bytes.
const maxServerName = 255

// serverName returns the name by which proxies of a mesh identify a rule to the egress. It replaces
// "*", which Envoy would interpret as a wildcard.
func (r *rule) serverName(mesh string) string {
	end := "{mesh=" + mesh + "}"
	name := lower(strings.ReplaceAll(r.name, "*", "+"))
	if len(name)+len(end) > maxServerName {
		sum := sha256.Sum256([]byte(name))
		name = "meshpassthrough_" + hex.EncodeToString(sum[:16])
	}
	return name + end
}

// egressCluster returns the cluster of a rule that leads to the egresses.
func (a *applier) egressCluster(r *rule) *draft.Cluster {
	out := &draft.Cluster{Kind: draft.PassthroughCluster, Origin: origin, Message: openCluster(r.name, r.stat)}
	switch {
	case r.fixed():
		if r.protocol == http2 || r.protocol == grpc {
			out.HTTP = draft.HTTP2Options
		}
	case r.named() && r.protocol.class() == requests:
		a.effect.notes.add(r,
			"closed: requests to several hosts cannot leave through the ZoneEgress, "+
				"which does not know their addresses; give an exact domain and a port, or type CIDR")
		out.Message = closedCluster(r.name)
		return out
	default:
		out.HTTP = draft.HTTP2Options
	}
	a.c.Host.Egress(out, r.serverName(a.c.View.Name))
	return out
}

// tunnel passes the address that the workload dialed to the egress, which reads it only from the
// header.
func tunnel() *tcpv3.TcpProxy_TunnelingConfig {
	const dialed = "%DOWNSTREAM_LOCAL_ADDRESS%"
	return &tcpv3.TcpProxy_TunnelingConfig{
		Hostname: dialed,
		HeadersToAdd: []*corev3.HeaderValueOption{{
			Header:       &corev3.HeaderValue{Key: policy.TunnelHeader, Value: dialed},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		}},
	}
}

// exits returns the destinations that a policy permits through an egress.
func exits(p *resource.Resource) []policy.Exit {
	conf := confOf(p)
	if conf == nil {
		return nil
	}
	var out []policy.Exit
	for i := range conf.AppendMatch {
		r, ok := ruleOf(&conf.AppendMatch[i], source{policy: p.Key, index: i})
		if !ok || !r.fixed() && r.named() && r.protocol.class() == requests {
			continue
		}
		e := policy.Exit{ServerName: r.serverName(p.Mesh), Name: r.name, Port: r.port}
		switch {
		case r.fixed() && r.named():
			e.Host = r.domain
		case r.fixed():
			e.Host = r.addr
		case !r.named() && !r.anywhere():
			e.Within = r.prefix
		}
		out = append(out, e)
	}
	return out
}
