package draft

import (
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/dns/table"
)

// AskReal makes the clusters that resolve one of some hosts ask for it in the spelling of
// [table.ProxySpelling]. The hosts are sorted and in lower case. The resolver returns the virtual
// address for them that the proxy itself serves. The name of the endpoint stays, for routes that
// rewrite the Host header.
func (d *Draft) AskReal(hosts []string) {
	if len(hosts) == 0 {
		return
	}
	for _, c := range d.Clusters {
		if t := c.Message.GetType(); t != clusterv3.Cluster_STRICT_DNS && t != clusterv3.Cluster_LOGICAL_DNS {
			continue
		}
		for _, l := range c.Message.GetLoadAssignment().GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				at, ok := e.GetEndpoint().GetAddress().GetAddress().(*corev3.Address_SocketAddress)
				if !ok {
					continue
				}
				named := at.SocketAddress.GetAddress()
				host := strings.ToLower(strings.TrimSuffix(named, "."))
				if _, is := slices.BinarySearch(hosts, host); !is {
					continue
				}
				to := e.GetEndpoint()
				if to.Hostname == "" {
					to.Hostname = named
				}
				to.Address = &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: table.ProxySpelling(host), Protocol: at.SocketAddress.GetProtocol(),
					PortSpecifier: at.SocketAddress.GetPortSpecifier(), ResolverName: at.SocketAddress.GetResolverName(),
					Ipv4Compat: at.SocketAddress.GetIpv4Compat(),
				}}}
			}
		}
	}
}
