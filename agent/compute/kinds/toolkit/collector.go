package toolkit

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// otlpPort is the default port of OTLP over gRPC (https://opentelemetry.io/docs/specs/otlp, section
// 2.2).
const otlpPort = 4317

// Collector is the address of an OpenTelemetry collector.
type Collector struct {
	Host string // name or IP address, without brackets
	Port uint32
}

// ParseCollector parses host or host:port. An IPv6 address with a port must be in brackets.
func ParseCollector(s string) (Collector, error) {
	if strings.Contains(s, "://") {
		return Collector{}, errors.New("a URL is not allowed: give host:port without a scheme; " +
			"Envoy connects to collectors by gRPC without TLS")
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return Collector{s, otlpPort}, nil // an IPv6 address without brackets has no port
	}
	out := Collector{s, otlpPort}
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		port, err := ParsePort(s[i+1:])
		if err != nil {
			return Collector{}, err
		}
		out = Collector{s[:i], port}
	}
	if inner, ok := strings.CutPrefix(out.Host, "["); ok {
		out.Host, ok = strings.CutSuffix(inner, "]")
		if a, err := netip.ParseAddr(out.Host); !ok || err != nil || !a.Is6() || a.Zone() != "" {
			return Collector{}, errors.New("brackets must enclose an IPv6 address without a zone")
		}
	} else if strings.ContainsAny(out.Host, ":[]") {
		return Collector{}, errors.New("the format is host:port, with an IPv6 address in brackets")
	}
	return out, nil
}

// ParsePort parses a port number.
func ParsePort(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port: give 1 to 65535", Clip(s))
	}
	return uint32(n), nil
}

// CheckCollector checks the endpoint of a collector.
func CheckCollector(v *resource.Validator, s string) {
	if s == "" {
		v.Faultf("the address of the collector is missing: give host:port, or host for port %d", otlpPort)
	} else if c, err := ParseCollector(s); err != nil {
		v.Faultf("%q: %v", Clip(s), err)
	} else {
		v.Host(c.Host)
	}
}

// connectTimeout is the connect timeout of clusters that plugins add.
const connectTimeout = 5 * time.Second

// Address returns a socket address for a host name or IP address.
func Address(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// ClusterEmpty is a cluster without endpoints. Envoy closes connections to it at once.
const ClusterEmpty = "nearside:nobody"

// AddEmptyCluster adds [ClusterEmpty] unless the draft contains it.
func AddEmptyCluster(d *draft.Draft, origin string) {
	if slices.ContainsFunc(d.Clusters, func(c *draft.Cluster) bool { return c.Message.GetName() == ClusterEmpty }) {
		return
	}
	c := StaticCluster(ClusterEmpty, origin, nil)
	c.Message.LoadAssignment.Endpoints = nil
	d.Clusters = append(d.Clusters, c)
}

// StaticCluster returns a cluster with one endpoint. Patches match it by origin.
func StaticCluster(name, origin string, at *corev3.Address) *draft.Cluster {
	return &draft.Cluster{Kind: draft.OtherCluster, Origin: origin, Message: &clusterv3.Cluster{
		Name:                 name,
		AltStatName:          StatName(name),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(connectTimeout),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: at}},
			}}}},
		},
	}}
}

// HostCluster is like [StaticCluster] for a host name or address. Envoy resolves names, and only to
// IPv4 addresses unless proxyAddress is an IPv6 address.
func HostCluster(name, origin string, at Collector, proxyAddress string) *draft.Cluster {
	c := StaticCluster(name, origin, Address(at.Host, at.Port))
	if _, err := netip.ParseAddr(at.Host); err != nil {
		c.Message.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
		if a, err := netip.ParseAddr(proxyAddress); err != nil || a.Is4() {
			c.Message.DnsLookupFamily = clusterv3.Cluster_V4_ONLY
		}
	}
	return c
}
