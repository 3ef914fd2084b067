package route_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// decode returns the faults of a policy.
func decode(kind, spec string) resource.Faults {
	_, faults := kinds.Registry().Decode("", fmt.Appendf(nil, `{"type":%q,"name":"p",%s}`, kind, spec))
	return faults
}

// httpRule returns a MeshHTTPRoute with one rule.
func httpRule(rule string) string {
	return `"spec":{"to":[{"targetRef":{"kind":"MeshService","name":"b"},"rules":[` + rule + `]}]}`
}

// match returns a policy with one match, filters one with filters, and refs one with destinations.
func match(m string) string   { return httpRule(`{"matches":[` + m + `],"default":{}}`) }
func filters(f string) string { return prefixed(`"filters":[` + f + `]`) }
func refs(r string) string    { return prefixed(`"backendRefs":[` + r + `]`) }
func prefixed(do string) string {
	return httpRule(`{"matches":[{"path":{"type":"PathPrefix","value":"/"}}],"default":{` + do + `}}`)
}

// conf returns a TrafficRoute.
func conf(c string) string {
	return `"sources":[{"match":{"kuma.io/service":"*"}}],"destinations":[{"match":{"kuma.io/service":"*"}}],"conf":{` +
		c + `}`
}

// legacyRule returns a TrafficRoute with one HTTP rule.
func legacyRule(r string) string {
	return conf(`"destination":{"kuma.io/service":"*"},"http":[{"destination":{"kuma.io/service":"*"},` + r + `}]`)
}

func TestAccepted(t *testing.T) {
	for _, tt := range []struct{ kind, spec string }{
		{"MeshHTTPRoute", `"spec":{}`},
		{"MeshHTTPRoute", `"spec":{"to":[]}`},
		{"MeshHTTPRoute", `"spec":{"to":[{"targetRef":{"kind":"MeshService","labels":{"a":"b"}},"rules":[]}]}`},
		{"MeshHTTPRoute", match(`{}`)},
		{"MeshHTTPRoute", match(`{"path":{"type":"Exact","value":"/a/"},"method":"TRACE","headers":[{"name":"a","value":""},{"name":"b","type":"Exact","value":"x"}]}`)},
		{"MeshHTTPRoute",
			refs(`{"kind":"MeshService","name":"b","weight":0},{"kind":"MeshService","labels":{"a":"b"},"weight":1}`)},
		{"MeshHTTPRoute", refs(`{"kind":"MeshMultiZoneService","name":"b","port":80,"weight":4294967295}`)},
		{"MeshHTTPRoute", refs(``)},
		{"MeshHTTPRoute", refs(`{"kind":"MeshService","labels":{"a":"b"},"port":80}`)},
		{"MeshHTTPRoute", `"spec":{"to":[{"targetRef":{"kind":"MeshService","namespace":"ns"},"rules":[]}]}`},
		{"MeshHTTPRoute", filters(
			`{"type":"RequestMirror","requestMirror":{"backendRef":{"kind":"MeshExternalService","name":"b"}}}`)},
		{"MeshHTTPRoute", filters(
			`{"type":"RequestMirror","requestMirror":{"backendRef":{"kind":"MeshMultiZoneService","name":"b","port":80}}}`)},
		{"MeshHTTPRoute", filters(`{"type":"RequestRedirect","requestRedirect":{}},{"type":"URLRewrite","urlRewrite":{"path":{"type":"ReplacePrefixMatch","replacePrefixMatch":"/"}}}`)},
		{"MeshHTTPRoute", filters(
			`{"type":"RequestMirror","requestMirror":{"backendRef":{"kind":"MeshService","name":"b"},"percentage":"99.9"}}`)},
		{"MeshHTTPRoute", `"spec":{"targetRef":{"kind":"MeshGateway","name":"edge"},"to":[{"targetRef":{"kind":"Mesh"},"hostnames":["*","*.example.com","a.example.com"],"rules":[` +
			`{"matches":[{}],"default":{"filters":[{"type":"URLRewrite","urlRewrite":{"hostToBackendHostname":true}}],"backendRefs":[{"kind":"MeshService","name":"b"}]}},` +
			`{"matches":[{"method":"GET"}],"default":{"filters":[{"type":"RequestRedirect","requestRedirect":{"scheme":"https"}}]}}]}]}`},
		{"MeshTCPRoute", `"spec":{"to":[{"targetRef":{"kind":"MeshService","name":"b"},"rules":[{"default":{"backendRefs":[{"kind":"MeshExternalService","name":"x"}]}}]}]}`},
		{"TrafficRoute", conf(`"destination":{"kuma.io/service":"*"},"loadBalancer":{}`)},
		{"TrafficRoute", conf(`"split":[{"weight":0,"destination":{"kuma.io/service":"a"}},{"weight":1,"destination":{"kuma.io/service":"b","version":"*"}}],"loadBalancer":{"leastRequest":{}}`)},
		{"TrafficRoute", legacyRule(`"match":{"headers":{":authority":{"exact":""},"X-A":{"prefix":"a"}}},"modify":{}`)},
		{"TrafficRoute", legacyRule(`"match":{"path":{"prefix":"/a"}},"modify":{"path":{"rewritePrefix":"/"},"host":{"fromPath":{"pattern":"^/(.)(.)$","substitution":"\\2\\1\\0\\\\"}}}`)},
		{"TrafficRoute", conf(
			`"destination":{"kuma.io/service":"*"},"loadBalancer":{"ringHash":{"hashFunction":"XX_HASH","maxRingSize":1024}}`)},
	} {
		if faults := decode(tt.kind, tt.spec); len(faults) > 0 {
			t.Errorf("%s\n%v", tt.spec, faults)
		}
	}
}

func TestRefused(t *testing.T) {
	const (
		rule   = "spec.to[0].rules[0]"
		m      = rule + ".matches[0]"
		do     = rule + ".default"
		filter = do + ".filters[0]"
		back   = do + ".backendRefs"
		old    = "conf.http[0]"
	)
	long := strings.Repeat("a", 254)
	header := func(name, value string) string {
		return filters(fmt.Sprintf(
			`{"type":"RequestHeaderModifier","requestHeaderModifier":{"set":[{"name":%q,"value":%q}]}}`, name, value))
	}
	for _, tt := range []struct{ kind, spec, field, reason string }{
		// Shape.
		{"MeshHTTPRoute", `"spec":{"to":[{"targetRef":{"kind":"Mesh"},"rules":[]}]}`,
			"spec.to[0].targetRef.kind", "one destination"},
		{"MeshHTTPRoute", `"spec":{"targetRef":{"kind":"MeshGateway","name":"e"},"to":[{"targetRef":{"kind":"MeshService","name":"b"},"rules":[]}]}`,
			"spec.to[0].targetRef.kind", "use Mesh"},
		{"MeshHTTPRoute", `"spec":{"to":[{"targetRef":{"kind":"MeshService","name":"b"},"hostnames":["a.b"],"rules":[]}]}`,
			"spec.to[0].hostnames", "requires targetRef kind MeshGateway"},
		{"MeshHTTPRoute", `"spec":{"targetRef":{"kind":"MeshGateway","name":"e"},"to":[{"targetRef":{"kind":"Mesh"},"hostnames":["a b"],"rules":[{"matches":[{}],"default":{}}]}]}`,
			"spec.to[0].hostnames[0]", "host name"},
		{"MeshHTTPRoute", `"spec":{"targetRef":{"kind":"MeshGateway","name":"e"},"to":[{"targetRef":{"kind":"Mesh"},"rules":[{"matches":[{}],"default":{}}]}]}`,
			back, "it has no service"},
		{"MeshHTTPRoute", `"spec":{"from":[]}`, "spec.from", "no from"},
		{"MeshHTTPRoute", httpRule(`{"default":{}}`), rule + ".matches", "missing"},
		{"MeshHTTPRoute", httpRule(`{"matchs":[],"default":{}}`), rule + ".matchs", `did you mean "matches"`},
		// Matches.
		{"MeshHTTPRoute", match(`{"path":{"type":"Prefix","value":"/"}}`), m + ".path.type", "PathPrefix"},
		{"MeshHTTPRoute", match(`{"path":{"value":"/"}}`), m + ".path.type", "missing"},
		{"MeshHTTPRoute", match(`{"path":{"type":"Exact","value":""}}`), m + ".path.value", "missing"},
		{"MeshHTTPRoute", match(`{"path":{"type":"Exact","value":"relative"}}`), m + ".path.value", "not absolute"},
		{"MeshHTTPRoute", match(`{"path":{"type":"PathPrefix","value":"relative"}}`), m + ".path.value",
			"not absolute"},
		{"MeshHTTPRoute", match(`{"path":{"type":"PathPrefix","value":"/a//"}}`), m + ".path.value", `use "/a"`},
		{"MeshHTTPRoute", match(`{"path":{"type":"RegularExpression","value":"("}}`), m + ".path.value", "RE2"},
		{"MeshHTTPRoute", match(`{"path":{"type":"RegularExpression","value":"(?=a)"}}`), m + ".path.value", "RE2"},
		{"MeshHTTPRoute", match(`{"path":{"type":"RegularExpression","value":""}}`), m + ".path.value", "empty"},
		{"MeshHTTPRoute", match(`{"method":"get"}`), m + ".method", "GET"},
		{"MeshHTTPRoute", match(`{"queryParams":[{"type":"Prefix","name":"a","value":"b"}]}`),
			m + ".queryParams[0].type", "Exact"},
		{"MeshHTTPRoute", match(`{"queryParams":[{"type":"Exact","value":"b"}]}`), m + ".queryParams[0].name", "missing"},
		{"MeshHTTPRoute", match(`{"queryParams":[{"type":"Exact","name":"` + strings.Repeat(long, 5) + `","value":"b"}]}`),
			m + ".queryParams[0].name", "at most 1024"},
		{"MeshHTTPRoute", match(`{"queryParams":[{"type":"RegularExpression","name":"a","value":"["}]}`),
			m + ".queryParams[0].value", "RE2"},
		{"MeshHTTPRoute",
			match(`{"queryParams":[{"type":"Exact","name":"a","value":"1"},{"type":"Exact","name":"a","value":"2"}]}`),
			m + ".queryParams[1].name", "twice"},
		{"MeshHTTPRoute", match(`{"headers":[{"name":"X-A","value":"1"}]}`), m + ".headers[0].name", "lower case"},
		{"MeshHTTPRoute", match(`{"headers":[{"name":":path","value":"1"}]}`), m + ".headers[0].name", "not allowed"},
		{"MeshHTTPRoute", match(`{"headers":[{"name":"a","type":"Suffix","value":"1"}]}`), m + ".headers[0].type", "Prefix"},
		{"MeshHTTPRoute", match(`{"headers":[{"name":"a","type":"Present","value":"1"}]}`), m + ".headers[0].value",
			"does not compare the value"},
		{"MeshHTTPRoute", match(`{"headers":[{"name":"a","type":"Absent","value":"1"}]}`), m + ".headers[0].value",
			"does not compare the value"},
		{"MeshHTTPRoute", match(`{"headers":[{"name":"a","type":"Prefix"}]}`), m + ".headers[0].value", "empty"},
		{"MeshHTTPRoute", match(`{"headers":[{"name":"a","type":"RegularExpression","value":"a{2000}"}]}`),
			m + ".headers[0].value", "RE2"},
		{"MeshHTTPRoute", match(`{"headers":[{"name":"a","value":"a\u0001"}]}`), m + ".headers[0].value",
			"control character"},
		// Filters.
		{"MeshHTTPRoute", filters(`{"type":"Redirect"}`), filter + ".type", "RequestRedirect"},
		{"MeshHTTPRoute", filters(`{"type":"RequestHeaderModifier"}`), filter + ".requestHeaderModifier", "missing"},
		{"MeshHTTPRoute", filters(`{"type":"ResponseHeaderModifier"}`), filter + ".responseHeaderModifier", "missing"},
		{"MeshHTTPRoute", filters(`{"type":"RequestRedirect"}`), filter + ".requestRedirect", "missing"},
		{"MeshHTTPRoute", filters(`{"type":"URLRewrite"}`), filter + ".urlRewrite", "missing"},
		{"MeshHTTPRoute", filters(`{"type":"RequestMirror","urlRewrite":{}}`), filter + ".urlRewrite", "separate filter"},
		{"MeshHTTPRoute", filters(`{"type":"ResponseHeaderModifier","responseHeaderModifier":{}}`),
			filter + ".responseHeaderModifier", "no change is given"},
		{"MeshHTTPRoute", filters(`{"type":"ResponseHeaderModifier","responseHeaderModifier":{"set":[{"name":"a","value":"1"}],"add":[{"name":"a","value":"1"}]}}`),
			filter + ".responseHeaderModifier.add[0].name", "twice"},
		{"MeshHTTPRoute", filters(
			`{"type":"ResponseHeaderModifier","responseHeaderModifier":{"set":[{"name":"a","value":"1"}],"remove":["a"]}}`),
			filter + ".responseHeaderModifier.remove[0]", "twice"},
		{"MeshHTTPRoute", filters(`{"type":"RequestHeaderModifier","requestHeaderModifier":{"remove":["a1","a2","a3","a4","a5","a6","a7","a8","a9","b1","b2","b3","b4","b5","b6","b7","b8"]}}`),
			filter + ".requestHeaderModifier.remove", "at most 16"},
		{"MeshHTTPRoute", header(":path", "/"), filter + ".requestHeaderModifier.set[0].name", "rewrite"},
		{"MeshHTTPRoute", header("host", "a"), filter + ".requestHeaderModifier.set[0].name", "rewrite"},
		{"MeshHTTPRoute", header("A", "a"), filter + ".requestHeaderModifier.set[0].name", "lower case"},
		{"MeshHTTPRoute", header("a", "100%"), filter + ".requestHeaderModifier.set[0].value", "%%"},
		{"MeshHTTPRoute", header("a", "%PROTOCOLL%"), filter + ".requestHeaderModifier.set[0].value", "PROTOCOL"},
		{"MeshHTTPRoute", header("a", strings.Repeat("a", 16385)), filter + ".requestHeaderModifier.set[0].value",
			"at most 16384"},
		{"MeshHTTPRoute", filters(`{"type":"RequestRedirect","requestRedirect":{"scheme":"ftp"}}`),
			filter + ".requestRedirect.scheme", "https"},
		{"MeshHTTPRoute", filters(`{"type":"RequestRedirect","requestRedirect":{"port":65536}}`),
			filter + ".requestRedirect.port", "65535"},
		{"MeshHTTPRoute", filters(`{"type":"RequestRedirect","requestRedirect":{"statusCode":300}}`),
			filter + ".requestRedirect.statusCode", "308"},
		{"MeshHTTPRoute", filters(`{"type":"RequestRedirect","requestRedirect":{"hostname":"127.0.0.1"}}`),
			filter + ".requestRedirect.hostname", "IP address"},
		{"MeshHTTPRoute", filters(`{"type":"RequestRedirect","requestRedirect":{"hostname":"2001:db8::1"}}`),
			filter + ".requestRedirect.hostname", "IP address"},
		{"MeshHTTPRoute", filters(`{"type":"RequestRedirect","requestRedirect":{"hostname":""}}`),
			filter + ".requestRedirect.hostname", "1 to 253"},
		{"MeshHTTPRoute", filters(`{"type":"RequestRedirect","requestRedirect":{"hostname":"` + long + `"}}`),
			filter + ".requestRedirect.hostname", "1 to 253"},
		{"MeshHTTPRoute", filters(`{"type":"URLRewrite","urlRewrite":{"hostname":"A.b"}}`), filter + ".urlRewrite.hostname",
			"lower case"},
		{"MeshHTTPRoute", filters(`{"type":"URLRewrite","urlRewrite":{"hostname":"a.b."}}`), filter + ".urlRewrite.hostname",
			"no trailing dot"},
		{"MeshHTTPRoute", filters(`{"type":"URLRewrite","urlRewrite":{"hostname":"a..b"}}`), filter + ".urlRewrite.hostname",
			"between the dots"},
		{"MeshHTTPRoute", filters(`{"type":"URLRewrite","urlRewrite":{"hostToBackendHostname":true}}`),
			filter + ".urlRewrite.hostToBackendHostname", "MeshGateway"},
		{"MeshHTTPRoute", filters(`{"type":"URLRewrite","urlRewrite":{"hostname":"a.b","hostToBackendHostname":true}}`),
			filter + ".urlRewrite.hostToBackendHostname", "also given"},
		{"MeshHTTPRoute", filters(`{"type":"URLRewrite","urlRewrite":{"path":{"type":"Replace"}}}`),
			filter + ".urlRewrite.path.type", "ReplaceFullPath"},
		{"MeshHTTPRoute", filters(`{"type":"URLRewrite","urlRewrite":{"path":{"type":"ReplaceFullPath"}}}`),
			filter + ".urlRewrite.path.replaceFullPath", "missing"},
		{"MeshHTTPRoute",
			filters(`{"type":"URLRewrite","urlRewrite":{"path":{"type":"ReplaceFullPath","replaceFullPath":"a"}}}`),
			filter + ".urlRewrite.path.replaceFullPath", "absolute"},
		{"MeshHTTPRoute",
			filters(`{"type":"URLRewrite","urlRewrite":{"path":{"type":"ReplaceFullPath","replaceFullPath":"/\n"}}}`),
			filter + ".urlRewrite.path.replaceFullPath", "line break"},
		{"MeshHTTPRoute", filters(`{"type":"URLRewrite","urlRewrite":{"path":{"type":"ReplacePrefixMatch"}}}`),
			filter + ".urlRewrite.path.replacePrefixMatch", "missing"},
		{"MeshHTTPRoute", httpRule(`{"matches":[{"path":{"type":"Exact","value":"/a"}}],"default":{"filters":[{"type":"RequestRedirect","requestRedirect":{"path":{"type":"ReplacePrefixMatch","replacePrefixMatch":"/b"}}}]}}`),
			filter + ".requestRedirect.path.replacePrefixMatch", "no prefix to replace"},
		{"MeshHTTPRoute", httpRule(`{"matches":[{}],"default":{"filters":[{"type":"URLRewrite","urlRewrite":{"path":{"type":"ReplacePrefixMatch","replacePrefixMatch":"/b"}}}]}}`),
			filter + ".urlRewrite.path.replacePrefixMatch", "no prefix to replace"},
		{"MeshHTTPRoute",
			filters(`{"type":"RequestMirror","requestMirror":{"backendRef":{"kind":"MeshServiceSubset","tags":{"a":"b"}}}}`),
			filter + ".requestMirror.backendRef.name", "missing"},
		{"MeshHTTPRoute",
			filters(`{"type":"RequestMirror","requestMirror":{"backendRef":{"kind":"MeshGateway","name":"a"}}}`),
			filter + ".requestMirror.backendRef.kind", "MeshServiceSubset"},
		{"MeshHTTPRoute",
			filters(`{"type":"RequestMirror","requestMirror":{"backendRef":{"kind":"MeshMultiZoneService","name":"a"}}}`),
			filter + ".requestMirror.backendRef.port", "missing"},
		{"MeshHTTPRoute", refs(`{"kind":"MeshService","namespace":"ns"}`), back + "[0].name",
			`one service of the namespace "ns"`},
		{"MeshHTTPRoute",
			filters(`{"type":"RequestMirror","requestMirror":{"backendRef":{"kind":"MeshService","name":"a","weight":2}}}`),
			filter + ".requestMirror.backendRef.weight", "percentage"},
		{"MeshHTTPRoute", filters(
			`{"type":"RequestMirror","requestMirror":{"backendRef":{"kind":"MeshService","name":"a"},"percentage":101}}`),
			filter + ".requestMirror.percentage", "0 to 100"},
		// Destinations.
		{"MeshHTTPRoute", refs(`{"kind":"MeshGateway","name":"a"}`), back + "[0].kind", "MeshService"},
		{"MeshHTTPRoute", refs(`{"kind":"MeshServiceSubset","tags":{"a":"b"}}`), back + "[0].name", "missing"},
		{"MeshHTTPRoute", refs(`{"kind":"MeshService","name":"a","tags":{"a":"b"}}`), back + "[0].tags", "to select fewer"},
		{"MeshHTTPRoute", refs(`{"kind":"MeshService","name":"a","labels":{"a":"b"}}`), back + "[0].name",
			"labels exclude a name"},
		{"MeshHTTPRoute", refs(`{"kind":"MeshService","name":"a","sectionName":"http"}`), back + "[0].sectionName",
			"give port"},
		{"MeshHTTPRoute", refs(`{"kind":"MeshService","name":"a","port":0}`), back + "[0].port", "1 to 65535"},
		{"MeshHTTPRoute", refs(`{"kind":"MeshServiceSubset","name":"a","port":80}`), back + "[0].port", "remove it"},
		{"MeshHTTPRoute", refs(`{"kind":"MeshMultiZoneService","name":"a"}`), back + "[0].port", "missing"},
		{"MeshHTTPRoute", refs(`{"kind":"MeshService","name":"a","weight":-1}`), back + "[0].weight", "0 to 4294967295"},
		{"MeshHTTPRoute", refs(`{"kind":"MeshService","name":"a","weight":0}`), back, "all weights are 0"},
		{"MeshHTTPRoute",
			refs(`{"kind":"MeshService","name":"a","weight":4294967295},{"kind":"MeshService","name":"b","weight":1}`), back,
			"at most 4294967295"},
		{"MeshTCPRoute", `"spec":{"to":[{"targetRef":{"kind":"MeshService","name":"b"},"rules":[]}]}`,
			"spec.to[0].rules", "exactly one"},
		{"MeshTCPRoute", `"spec":{"to":[{"targetRef":{"kind":"MeshService","name":"b"},"rules":[{"default":{}}]}]}`,
			back, "missing"},
		{"MeshTCPRoute", `"spec":{"to":[{"targetRef":{"kind":"MeshService","name":"b"},"rules":[{"default":{"backendRefs":[{"kind":"MeshService"}]}}]}]}`,
			back + "[0].name", "missing"},
		{"MeshTCPRoute", `"spec":{"to":[{"targetRef":{"kind":"Mesh"},"rules":[]}]}`,
			"spec.to[0].targetRef.kind", "one destination"},
		// TrafficRoute.
		{"TrafficRoute", `"sources":[{"match":{"kuma.io/service":"*"}}],"destinations":[{"match":{"kuma.io/service":"*"}}]`,
			"conf", "missing"},
		{"TrafficRoute", conf(``), "conf", "no destination"},
		{"TrafficRoute",
			conf(`"destination":{"kuma.io/service":"a"},"split":[{"weight":1,"destination":{"kuma.io/service":"b"}}]`),
			"conf.split", "also given"},
		{"TrafficRoute", conf(`"destination":{"version":"a"}`), `conf.destination["kuma.io/service"]`, "missing"},
		{"TrafficRoute", conf(`"split":[{"weight":0,"destination":{"kuma.io/service":"b"}}]`),
			"conf.split", "all weights are 0"},
		{"TrafficRoute", conf(`"split":[{"destination":{"kuma.io/service":"b"}}]`), "conf.split[0].weight", "missing"},
		{"TrafficRoute", conf(`"split":[{"weight":1}]`), "conf.split[0].destination", "missing"},
		{"TrafficRoute", conf(`"split":[{"weight":4294967295,"destination":{"kuma.io/service":"b"}},{"weight":1,"destination":{"kuma.io/service":"b"}}]`),
			"conf.split", "at most 4294967295"},
		{"TrafficRoute", legacyRule(`"modify":{}`), old + ".match", "no condition is given"},
		{"TrafficRoute", conf(`"destination":{"kuma.io/service":"*"},"http":[{"match":{"path":{"prefix":"/"}}}]`), old,
			"no destination"},
		{"TrafficRoute", legacyRule(`"match":{"path":{}}`), old + ".match.path", "exactly one"},
		{"TrafficRoute", legacyRule(`"match":{"path":{"prefix":"/","exact":"/"}}`), old + ".match.path", "exactly one"},
		{"TrafficRoute", legacyRule(`"match":{"path":{"prefix":""}}`), old + ".match.path.prefix", "empty"},
		{"TrafficRoute", legacyRule(`"match":{"method":{"regex":"("}}`), old + ".match.method.regex", "RE2"},
		{"TrafficRoute", legacyRule(`"match":{"headers":{"a b":{"exact":"1"}}}`), old + `.match.headers["a b"]`,
			"not allowed"},
		{"TrafficRoute", legacyRule(`"match":{"path":{"exact":"/"}},"modify":{"path":{"rewritePrefix":"/a"}}`),
			old + ".modify.path.rewritePrefix", "no prefix"},
		{"TrafficRoute", legacyRule(`"match":{"path":{"prefix":"/"}},"modify":{"path":{"rewritePrefix":""}}`),
			old + ".modify.path.rewritePrefix", "absolute"},
		{"TrafficRoute", legacyRule(`"match":{"path":{"prefix":"/"}},"modify":{"path":{}}`), old + ".modify.path",
			"exactly one"},
		{"TrafficRoute",
			legacyRule(`"match":{"path":{"prefix":"/"}},"modify":{"path":{"regex":{"pattern":"","substitution":""}}}`),
			old + ".modify.path.regex.pattern", "empty"},
		{"TrafficRoute",
			legacyRule(`"match":{"path":{"prefix":"/"}},"modify":{"path":{"regex":{"pattern":".","substitution":"\\1"}}}`),
			old + ".modify.path.regex.substitution", "has no group"},
		{"TrafficRoute", legacyRule(`"match":{"path":{"prefix":"/"}},"modify":{"host":{}}`), old + ".modify.host",
			"exactly one"},
		{"TrafficRoute", legacyRule(`"match":{"path":{"prefix":"/"}},"modify":{"host":{"value":""}}`),
			old + ".modify.host.value", "missing"},
		{"TrafficRoute",
			legacyRule(`"match":{"path":{"prefix":"/"}},"modify":{"host":{"fromPath":{"pattern":"a","substitution":""}}}`),
			old + ".modify.host.fromPath.substitution", "missing"},
		{"TrafficRoute",
			legacyRule(`"match":{"path":{"prefix":"/"}},"modify":{"requestHeaders":{"add":[{"name":"Host","value":"a"}]}}`),
			old + ".modify.requestHeaders.add[0].name", "rewrite"},
		{"TrafficRoute",
			legacyRule(`"match":{"path":{"prefix":"/"}},"modify":{"requestHeaders":{"add":[{"name":"a","value":""}]}}`),
			old + ".modify.requestHeaders.add[0].value", "missing"},
		{"TrafficRoute", legacyRule(`"match":{"path":{"prefix":"/"}},"modify":{"responseHeaders":{"remove":[{"name":""}]}}`),
			old + ".modify.responseHeaders.remove[0].name", "missing"},
		{"TrafficRoute", conf(`"destination":{"kuma.io/service":"*"},"loadBalancer":{"random":{},"maglev":{}}`),
			"conf.loadBalancer", "give one of"},
		{"TrafficRoute", conf(`"destination":{"kuma.io/service":"*"},"loadBalancer":{"leastRequest":{"choiceCount":1}}`),
			"conf.loadBalancer.leastRequest.choiceCount", "at least 2"},
		{"TrafficRoute", conf(`"destination":{"kuma.io/service":"*"},"loadBalancer":{"ringHash":{}}`),
			"conf.loadBalancer.ringHash.hashFunction", "XX_HASH"},
		{"TrafficRoute", conf(`"destination":{"kuma.io/service":"*"},"loadBalancer":{"ringHash":{"hashFunction":"XX_HASH","minRingSize":8388609}}`),
			"conf.loadBalancer.ringHash.minRingSize", "maximum is 8388608"},
		{"TrafficRoute", conf(
			`"destination":{"kuma.io/service":"*"},"loadBalancer":{"ringHash":{"hashFunction":"XX_HASH","maxRingSize":1000}}`),
			"conf.loadBalancer.ringHash.maxRingSize", "minRingSize"},
	} {
		found := false
		faults := decode(tt.kind, tt.spec)
		for _, f := range faults {
			found = found || f.Field == tt.field && strings.Contains(f.Reason, tt.reason)
		}
		if !found {
			t.Errorf("%s\nwant a fault at %s with %q, got %v", tt.spec, tt.field, tt.reason, faults)
		}
	}
}

// TestBounds checks that the expanded size of rules is limited, because a document of a few
// kilobytes could otherwise exhaust the memory.
func TestBounds(t *testing.T) {
	list := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	many := func(matches, refs int) string {
		return httpRule(`{"matches":[` + list(matches, "{}") + `],"default":{"backendRefs":[` +
			list(refs, `{"kind":"MeshService","name":"b"}`) + `]}}`)
	}
	if faults := decode("MeshHTTPRoute", many(400, 400)); len(faults) > 0 {
		t.Errorf("160,000 entries: %v", faults)
	}
	faults := decode("MeshHTTPRoute", many(500, 500))
	if len(faults) != 1 || faults[0].Field != "spec.to[0].rules" || !strings.Contains(faults[0].Reason, "at most 200000") {
		t.Errorf("250,500 entries: %v", faults)
	}
}
