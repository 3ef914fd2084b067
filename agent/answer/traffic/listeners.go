package traffic

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// direction is the direction of a listener's traffic.
type direction int

const (
	toService   direction = iota // from the workload to a service of the mesh
	passthrough                  // from the workload to addresses that belong to no service known to the proxy
	inbound                      // to the workload
)

// listener is a listener of the proxy with the values that log lines may contain.
type listener struct {
	name      string
	direction direction
	address   netip.AddrPort
	backends  []int           // indexes into explain.Backends.Items
	clusters  map[string]bool // clusters it leads to, including their alternative names
	hosts     map[netip.AddrPort]bool
	names     map[string]bool // host names of its backends
	logged    coverage
}

// coverage is how much of a listener's traffic the logs contain.
type coverage int

const (
	nothing coverage = iota
	some             // the loggers filter entries
	all
)

// Prefixes of listener names.
const (
	prefixInbound     = "inbound:"
	prefixOutbound    = "outbound:"
	prefixPassthrough = "outbound:passthrough:"
)

// isPassthrough reports whether a listener is for connections to addresses that no other listener
// has.
func isPassthrough(name string) bool {
	return strings.HasPrefix(name, prefixPassthrough) || strings.HasPrefix(name, draft.VirtualListener+":")
}

// Config is the config of a proxy: resources as JSON, by type URL and name.
type Config = map[string]map[string]json.RawMessage

// The parts of Envoy's resources that are read.
type (
	socketAddress struct {
		SocketAddress struct {
			Address   string `json:"address"`
			PortValue uint16 `json:"portValue"`
		} `json:"socketAddress"`
	}
	assignment struct {
		Endpoints []struct {
			LbEndpoints []struct {
				Endpoint struct {
					Address socketAddress `json:"address"`
				} `json:"endpoint"`
			} `json:"lbEndpoints"`
		} `json:"endpoints"`
	}
	cluster struct {
		AltStatName    string     `json:"altStatName"`
		LoadAssignment assignment `json:"loadAssignment"`
	}
)

func (a *socketAddress) addrPort() (netip.AddrPort, bool) {
	ip, err := netip.ParseAddr(a.SocketAddress.Address)
	return netip.AddrPortFrom(ip.Unmap(), a.SocketAddress.PortValue), err == nil
}

func (a *assignment) hosts() []netip.AddrPort {
	var out []netip.AddrPort
	for i := range a.Endpoints {
		for j := range a.Endpoints[i].LbEndpoints {
			if at, ok := a.Endpoints[i].LbEndpoints[j].Endpoint.Address.addrPort(); ok {
				out = append(out, at)
			}
		}
	}
	return out
}

// parseListeners reads the listeners of a config, sorted by name.
func parseListeners(config Config, b *explain.Backends) ([]*listener, error) {
	byAddress := map[netip.AddrPort][]int{}
	for i := range b.Items {
		for _, a := range b.Items[i].Addresses {
			byAddress[a] = append(byAddress[a], i)
		}
	}
	clusters := map[string]cluster{}
	for name, raw := range config[envoy.KindCluster.URL()] {
		var c cluster
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", name, err)
		}
		clusters[name] = c
	}
	var out []*listener
	listeners := config[envoy.KindListener.URL()]
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		var head struct {
			Address socketAddress `json:"address"`
		}
		var doc any
		if err := json.Unmarshal(listeners[name], &head); err != nil {
			return nil, fmt.Errorf("listener %s: %w", name, err)
		}
		if err := json.Unmarshal(listeners[name], &doc); err != nil {
			return nil, fmt.Errorf("listener %s: %w", name, err)
		}
		o := &listener{name: name, direction: passthrough, clusters: map[string]bool{}, hosts: map[netip.AddrPort]bool{},
			names: map[string]bool{}}
		o.address, _ = head.Address.addrPort()
		switch {
		case strings.HasPrefix(name, prefixInbound):
			o.direction = inbound
		case strings.HasPrefix(name, prefixOutbound) && !isPassthrough(name) &&
			len(byAddress[o.address]) > 0:
			o.direction, o.backends = toService, byAddress[o.address]
		}
		led := map[string]bool{}
		leads(doc, led, func(routes string) {
			var doc any
			if json.Unmarshal(config[envoy.KindRoute.URL()][routes], &doc) == nil {
				leads(doc, led, nil)
			}
		})
		for c := range led {
			o.clusters[c] = true
			if alt := clusters[c].AltStatName; alt != "" {
				o.clusters[alt] = true
			}
			own := clusters[c]
			var eds assignment
			_ = json.Unmarshal(config[envoy.KindEndpoint.URL()][c], &eds) // without EDS it stays empty
			for _, h := range append(own.LoadAssignment.hosts(), eds.hosts()...) {
				o.hosts[h] = true
			}
		}
		for _, i := range o.backends {
			for _, h := range b.Items[i].Hostnames {
				o.names[h] = true
			}
		}
		out = append(out, o)
	}
	return out, nil
}

// leads collects the names of clusters in a part of a config and calls routes with the names of
// route configurations.
func leads(v any, into map[string]bool, routes func(string)) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			leads(x, into, routes)
		}
	case map[string]any:
		for k, x := range v {
			name, text := x.(string)
			list, many := x.([]any)
			switch {
			case k == "cluster" && text:
				into[name] = true
			case k == "routeConfigName" && text && routes != nil:
				routes(name)
			case k == "clusters" && many:
				for _, c := range list {
					if m, ok := c.(map[string]any); ok {
						if name, ok := m["name"].(string); ok {
							into[name] = true
						}
					}
				}
			default:
				leads(x, into, routes)
			}
		}
	}
}
