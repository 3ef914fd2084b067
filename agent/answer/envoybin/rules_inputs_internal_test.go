package envoybin

import (
	"maps"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

const (
	networkTypes = "envoy.extensions.filters.network."
	tlsTypes     = "envoy.extensions.transport_sockets.tls.v3."
	optionsType  = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
)

// build passes the resources of an input to a function: those without a fault with the parts of the
// input. wait says that Envoy asks for a resource because of the one before.
func (c *loadRuleCase) build(name string, i int, add func(k envoy.Kind, tree object, wait bool)) {
	switch {
	case c.Endpoints != nil:
		cluster := merged(goodCluster(name), c.Cluster)
		cluster["type"], cluster["edsClusterConfig"] = "EDS", object{"edsConfig": fromADS()}
		delete(cluster, "loadAssignment")
		add(envoy.KindCluster, cluster, false)
		add(envoy.KindEndpoint, merged(object{"clusterName": name}, c.Endpoints), true)
	case c.Secret != nil:
		c.Downstream = merged(object{"commonTlsContext": object{
			"tlsCertificateSdsSecretConfigs": []any{object{"name": name, "sdsConfig": fromADS()}}}}, c.Downstream)
		add(envoy.KindListener, c.listener(name, i), false)
		add(envoy.KindSecret, merged(object{"name": name}, c.Secret), true)
	case c.Discovered != nil:
		c.Manager = object{"rds": object{"routeConfigName": name, "configSource": fromADS()}, "routeConfig": nil}
		add(envoy.KindListener, c.listener(name, i), false)
		add(envoy.KindRoute, merged(object{"name": name}, c.Discovered), true)
	case c.Cluster != nil || c.Upstream != nil || c.Options != nil:
		tree := merged(goodCluster(name), c.Cluster)
		if c.Upstream != nil {
			tree["transportSocket"] = object{"name": "tls",
				"typedConfig": merged(object{"@type": tlsTypes + "UpstreamTlsContext"}, c.Upstream)}
		}
		if c.Options != nil {
			tree["typedExtensionProtocolOptions"] = object{optionsType: merged(object{"@type": optionsType}, c.Options)}
		}
		add(envoy.KindCluster, tree, false)
	default:
		add(envoy.KindListener, c.listener(name, i), false)
	}
}

func fromADS() object { return object{"ads": object{}, "resourceApiVersion": "V3"} }

func goodCluster(name string) object {
	return object{"name": name, "type": "STATIC", "connectTimeout": "1s", "loadAssignment": object{"clusterName": name,
		"endpoints": []any{object{"lbEndpoints": []any{object{"endpoint": object{"address": object{"socketAddress": object{
			"address": "127.0.0.1", "portValue": 1}}}}}}}}}
}

// listener returns the listener of an input.
func (c *loadRuleCase) listener(name string, i int) object {
	chain := merged(object{"name": "a", "filters": c.filters()}, c.Chain)
	if c.Match != nil {
		chain["filterChainMatch"] = c.Match
	}
	if c.Downstream != nil {
		d := merged(object{"@type": tlsTypes + "DownstreamTlsContext"}, c.Downstream)
		chain["transportSocket"] = object{"name": "tls", "typedConfig": d}
	}
	out := object{"name": name, "bindToPort": false, "filterChains": []any{chain},
		"address": object{"socketAddress": object{"address": "127.0.0.1", "portValue": 20000 + i}}}
	if c.Matcher != nil {
		out["filterChainMatcher"] = c.Matcher
	}
	chains, given := c.Listener["filterChains"].([]any)
	out = merged(out, c.Listener)
	if given { // each without filters has those of the input
		for j, x := range chains {
			if x, is := x.(object); is {
				chains[j] = merged(object{"filters": c.filters()}, x)
			}
		}
	}
	return out
}

// filters returns the network filters of an input.
func (c *loadRuleCase) filters() []any {
	var out []any
	if c.Network != nil {
		out = append(out, extensionOf(networkTypes, c.Network))
	}
	if c.Manager == nil && c.Filter == nil && c.Log == nil && c.Route == nil && c.Host == nil && c.Routes == nil {
		return append(out, extensionOf(networkTypes, merged(object{"type": "tcp_proxy.v3.TcpProxy", "statPrefix": "a",
			"cluster": "static"}, c.TCP)))
	}
	route := merged(object{"match": object{"prefix": "/"}, "route": object{"cluster": "static"}}, c.Route)
	host := merged(object{"name": "a", "domains": []any{"*"}, "routes": []any{route}}, c.Host)
	filters := []any{extensionOf("envoy.extensions.filters.http.", object{"type": "router.v3.Router"})}
	if c.Filter != nil {
		filters = append([]any{extensionOf("envoy.extensions.filters.http.", c.Filter)}, filters...)
	}
	manager := object{"type": "http_connection_manager.v3.HttpConnectionManager", "statPrefix": "a",
		"routeConfig": merged(object{"name": "a", "virtualHosts": []any{host}}, c.Routes), "httpFilters": filters}
	if c.Log != nil {
		log := merged(object{}, c.Log)
		filter := log["filter"]
		delete(log, "filter")
		x := extensionOf("envoy.extensions.access_loggers.", log)
		if filter != nil {
			x["filter"] = filter
		}
		manager["accessLog"] = []any{x}
	}
	return append(out, extensionOf(networkTypes, merged(manager, c.Manager)))
}

// extensionOf returns an extension. The key "type" of the config is its type in a package.
func extensionOf(pkg string, config object) object {
	config = maps.Clone(config)
	if name, is := config["type"].(string); is {
		config["@type"] = pkg + name
	}
	delete(config, "type")
	return object{"name": "x", "typedConfig": config}
}

// merged returns a copy of a tree with the parts of another one. null removes a part.
func merged(base, more object) object {
	out := maps.Clone(base)
	for k, v := range more {
		b, isNode := out[k].(object)
		m, both := v.(object)
		switch {
		case v == nil:
			delete(out, k)
		case isNode && both:
			out[k] = merged(b, m)
		default:
			out[k] = v
		}
	}
	return out
}

// withTypes completes the URLs of types in a tree.
func withTypes(v any) any {
	switch v := v.(type) {
	case object:
		out := make(object, len(v))
		for k, x := range v {
			if text, is := x.(string); is && k == "@type" && !strings.Contains(text, "/") {
				x = envoy.TypePrefix + text
			}
			out[k] = withTypes(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = withTypes(x)
		}
		return out
	}
	return v
}
