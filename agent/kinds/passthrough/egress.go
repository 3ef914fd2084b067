package passthrough

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Where the Mesh lets what leaves it go through the egresses of the zone, so does what the matches permit. The egress
// tells matches apart by the server name of the mutual TLS between proxies. A match that leads to one place, which is an
// address or a domain on a given port, has a cluster there that leads to it. Of all others the address that the workload
// dialled is handed over in a tunnel (HTTP/2 CONNECT, RFC 9113 section 8.5), and the egress lets it pass within the
// addresses and the port of the match.

// fixed reports whether the rule leads to one place.
func (r *rule) fixed() bool {
	return r.port != 0 && (r.kind == domainTarget || r.kind == addressTarget)
}

// maxServerName is the longest server name that Envoy's field takes, in bytes.
const maxServerName = 255

// serverName is the name by which proxies of a mesh ask the egress for what a rule permits. Envoy would take a * for
// more than itself.
func (r *rule) serverName(mesh string) string {
	end := "{mesh=" + mesh + "}"
	name := lower(strings.ReplaceAll(r.name, "*", "+"))
	if len(name)+len(end) > maxServerName {
		sum := sha256.Sum256([]byte(name))
		name = "meshpassthrough_" + hex.EncodeToString(sum[:16])
	}
	return name + end
}

// egressCluster makes the cluster of a rule that leads to the egresses.
func (a *applier) egressCluster(r *rule) *draft.Cluster {
	out := &draft.Cluster{Kind: draft.PassthroughCluster, Origin: origin, Message: openCluster(r.name, r.stat)}
	switch {
	case r.fixed():
		if r.protocol == http2 || r.protocol == grpc {
			out.HTTP = draft.HTTP2Options
		}
	case r.named() && r.protocol.class() == requests:
		a.effect.notes.add(r, "closed: requests to hosts that no single place stands for cannot leave through the ZoneEgress, which does not see the addresses that they were sent to; give an exact domain and a port, or the type CIDR")
		out.Message = closedCluster(r.name)
		return out
	default:
		out.HTTP = draft.HTTP2Options
	}
	a.c.Host.Egress(out, r.serverName(a.c.View.Name))
	return out
}

// tunnel hands over the address that the workload dialled. The egress takes it from the header alone.
func tunnel() *tcpv3.TcpProxy_TunnelingConfig {
	const dialled = "%DOWNSTREAM_LOCAL_ADDRESS%"
	return &tcpv3.TcpProxy_TunnelingConfig{
		Hostname: dialled,
		HeadersToAdd: []*corev3.HeaderValueOption{{
			Header:       &corev3.HeaderValue{Key: policy.TunnelHeader, Value: dialled},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		}},
	}
}

// exits are what a policy lets out through an egress.
func exits(p *resource.Resource) []policy.Exit {
	conf := confOf(p)
	if conf == nil {
		return nil
	}
	var out []policy.Exit
	for i := range conf.AppendMatch {
		r, ok := ruleOf(&conf.AppendMatch[i], source{p.Key, i})
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
