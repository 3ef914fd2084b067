package served

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

const (
	envoyTypes   = "type.googleapis.com/envoy.config."
	typeCluster  = envoyTypes + "cluster.v3.Cluster"
	typeListener = envoyTypes + "listener.v3.Listener"
	typeEndpoint = envoyTypes + "endpoint.v3.ClusterLoadAssignment"
	typeRoute    = envoyTypes + "route.v3.RouteConfiguration"
	typeSecret   = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret" // #nosec G101 -- a type
)

// own matches resources for the surroundings of a proxy: metrics, DNS, probes, and access logs.
var own = regexp.MustCompile(`^(kuma:|_kuma_|_kuma:|nearside:|access_log_sink$|probe:)`)

// unordered are lists whose order has no meaning.
var unordered = []string{"domains", "serverNames", "exact", "filterChains", "virtualHosts", "lbEndpoints", "endpoints",
	"principals", "permissions", "ids", "matchTypedSubjectAltNames"}

// unread are fields that do not affect traffic.
var unread = []string{"statPrefix", "altStatName"}

// normalize returns a config without what a server may choose.
func normalize(c Config) Config {
	out := Config{}
	for typeURL, list := range c {
		kept := map[string]any{}
		for name, r := range list {
			if !own.MatchString(name) {
				kept[name] = r
			}
		}
		if len(kept) > 0 {
			out[typeURL] = kept
		}
	}
	inlineRoutes(out)
	for name := range out[typeSecret] {
		out[typeSecret][name] = map[string]any{"name": name}
	}
	for _, l := range out[typeListener] {
		if o, is := l.(map[string]any); is {
			delete(o, "metadata")
		}
	}
	return sorted(out)
}

// sorted returns a config after [tidy].
func sorted(c Config) Config {
	for _, list := range c {
		for name, r := range list {
			list[name] = walk(r, tidy)
		}
	}
	return c
}

// walk applies a function to all objects of a value, inner ones first.
func walk(v any, f func(map[string]any)) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = walk(x, f)
		}
		f(v)
	case []any:
		for i, x := range v {
			v[i] = walk(x, f)
		}
	}
	return v
}

// tidy removes fields without meaning, and sorts lists whose order has none.
func tidy(o map[string]any) {
	for _, k := range unread {
		delete(o, k)
	}
	for _, k := range unordered {
		if list, is := o[k].([]any); is {
			slices.SortFunc(list, func(a, b any) int { return strings.Compare(text(a), text(b)) })
		}
	}
	_, matches := o["match"]
	for _, k := range [...]string{"route", "redirect", "directResponse"} {
		if _, is := o[k]; is && matches {
			delete(o, "name") // of a route
		}
	}
}

// text returns the JSON of a value. It has sorted keys, and begins with the name if there is one.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // not for decoded JSON
		return ""
	}
	if o, is := v.(map[string]any); is {
		name, _ := o["name"].(string)
		return name + string(b)
	}
	return string(b)
}

// inlineRoutes puts routes that are sent by RDS into their listeners.
func inlineRoutes(c Config) {
	used := map[string]bool{}
	for _, l := range c[typeListener] {
		walk(l, func(o map[string]any) {
			if rds, is := o["rds"].(map[string]any); is {
				name, _ := rds["routeConfigName"].(string)
				if r, known := c[typeRoute][name]; known {
					used[name] = true
					delete(o, "rds")
					o["routeConfig"] = copied(r)
				}
			}
			if r, is := o["routeConfig"].(map[string]any); is {
				delete(r, "name")
				if r["validateClusters"] == false {
					delete(r, "validateClusters")
				}
			}
		})
	}
	for name := range used {
		delete(c[typeRoute], name)
	}
	if len(c[typeRoute]) == 0 {
		delete(c, typeRoute)
	}
}

func copied(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		for k, x := range out {
			out[k] = copied(x)
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i, x := range out {
			out[i] = copied(x)
		}
		return out
	}
	return v
}

// virtual are the networks of virtual addresses.
var virtual = []netip.Prefix{netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("fd00:fd00::/24")}

// addresses returns names for virtual addresses and their listeners, by the cluster to which they
// lead.
func addresses(c Config) map[string]string {
	names := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c[typeListener])) {
		l, _ := c[typeListener][name].(map[string]any)
		address, _ := l["address"].(map[string]any)
		socket, _ := address["socketAddress"].(map[string]any)
		ip, _ := socket["address"].(string)
		a, err := netip.ParseAddr(ip)
		if err != nil || !slices.ContainsFunc(virtual, func(p netip.Prefix) bool { return p.Contains(a) }) {
			continue
		}
		version := "v4"
		if a.Is6() {
			version = "v6"
		}
		token := fmt.Sprintf("vip-%s(%s)", version, firstCluster(l["filterChains"]))
		names[name], names[ip] = fmt.Sprintf("outbound:%s:%v", token, socket["portValue"]), token
	}
	return names
}

// firstCluster returns the first cluster in a value, in the order of keys.
func firstCluster(v any) string {
	switch v := v.(type) {
	case map[string]any:
		if name, is := v["cluster"].(string); is {
			return name
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if name := firstCluster(v[k]); name != "" {
				return name
			}
		}
	case []any:
		for _, x := range v {
			if name := firstCluster(x); name != "" {
				return name
			}
		}
	}
	return ""
}

// renamed returns a config with other names for resources and in all strings.
func renamed(c Config, names map[string]string) Config {
	if len(names) == 0 {
		return c
	}
	out := Config{}
	for typeURL, list := range c {
		out[typeURL] = map[string]any{}
		for name, r := range list {
			out[typeURL][replaced(name, names)] = rename(r, names)
		}
	}
	return out
}

func replaced(s string, names map[string]string) string {
	if to, is := names[s]; is {
		return to
	}
	return s
}

func rename(v any, names map[string]string) any {
	switch v := v.(type) {
	case string:
		return replaced(v, names)
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[replaced(k, names)] = rename(x, names)
		}
		return out
	case []any:
		for i, x := range v {
			v[i] = rename(x, names)
		}
	}
	return v
}

// renameClusters gives clusters of the same content the same name in both configs, if the content
// occurs once in each.
func renameClusters(was, is Config) {
	content := func(c, other Config) map[string]string {
		out := map[string]string{}
		for name, cluster := range c[typeCluster] {
			if _, both := other[typeCluster][name]; both {
				continue
			}
			endpoints := c[typeEndpoint][name]
			key := strings.ReplaceAll(text(cluster)+text(endpoints), `"`+name+`"`, `""`)
			key = strings.TrimPrefix(key, name)
			if _, twice := out[key]; twice {
				out[key] = ""
			} else {
				out[key] = name
			}
		}
		return out
	}
	a, b := content(was, is), content(is, was)
	names := map[string]string{}
	for key, name := range a {
		if to := b[key]; name != "" && to != "" {
			names[name] = to
		}
	}
	for typeURL, list := range renamed(was, names) {
		was[typeURL] = list
	}
}
