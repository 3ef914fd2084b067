package route

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// HTTPConf is what a MeshHTTPRoute says about the requests to a destination.
type HTTPConf struct {
	Hostnames []string   `json:"hostnames,omitempty"` // gateways only
	Rules     []HTTPRule `json:"rules,omitempty" merge:"first=Matches"`
}

// HTTPRule says what happens to the requests that some of its matches take. The matches are its
// identity: rules of several policies with the same matches are one rule.
type HTTPRule struct {
	Matches []Match `json:"matches"`
	Default Action  `json:"default"`
}

// Match takes the requests for which all that it says is true. The order of its fields is that of
// Kuma, and with it the names of routes are.
type Match struct {
	Path        *PathMatch            `json:"path,omitempty"`
	Method      string                `json:"method,omitempty"`
	QueryParams []QueryMatch          `json:"queryParams,omitempty"`
	Headers     []toolkit.HeaderMatch `json:"headers,omitempty"`
}

// PathMatch is about the path of a request, without the query.
type PathMatch struct {
	Value string `json:"value"`
	Type  string `json:"type"` // Exact, PathPrefix or RegularExpression
}

// The types of matches.
const (
	exact      = toolkit.MatchExact
	pathPrefix = "PathPrefix" // whole elements of the path: /a takes /a and /a/b but not /ab
	pattern    = toolkit.MatchRegex
)

// QueryMatch is about a parameter of the query.
type QueryMatch struct {
	Type  string `json:"type"` // Exact or RegularExpression
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Action says what happens to a request. An empty list takes the place of one from another policy.
type Action struct {
	Filters     *[]Filter     `json:"filters,omitempty"`
	BackendRefs *[]BackendRef `json:"backendRefs,omitempty"` // without any the requests go to the service itself
}

// Filter changes requests or responses: it is one of its fields, the one that the type names.
type Filter struct {
	Type                   string          `json:"type"`
	RequestHeaderModifier  *HeaderModifier `json:"requestHeaderModifier,omitempty"`
	ResponseHeaderModifier *HeaderModifier `json:"responseHeaderModifier,omitempty"`
	RequestRedirect        *Redirect       `json:"requestRedirect,omitempty"`
	URLRewrite             *Rewrite        `json:"urlRewrite,omitempty"`
	RequestMirror          *Mirror         `json:"requestMirror,omitempty"`
}

// The types of filters.
const (
	requestHeaders  = "RequestHeaderModifier"
	responseHeaders = "ResponseHeaderModifier"
	redirect        = "RequestRedirect"
	rewrite         = "URLRewrite"
	mirror          = "RequestMirror"
)

// HeaderModifier changes headers. A header occurs in it once.
type HeaderModifier struct {
	Set    []Header `json:"set,omitempty"` // in place of those that are there
	Add    []Header `json:"add,omitempty"` // beside those that are there
	Remove []string `json:"remove,omitempty"`
}

// Header is a header with its value, in which Envoy's substitutions such as %PROTOCOL% are allowed.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Redirect answers a request with another address to ask at.
type Redirect struct {
	Scheme     string       `json:"scheme,omitempty"` // http or https; default that of the request
	Hostname   *string      `json:"hostname,omitempty"`
	Path       *PathRewrite `json:"path,omitempty"`
	Port       *uint32      `json:"port,omitempty"`
	StatusCode *int         `json:"statusCode,omitempty"` // 301, 302, 303, 307 or 308; default 302
}

// Rewrite changes where a request is addressed.
type Rewrite struct {
	Hostname              *string      `json:"hostname,omitempty"`
	Path                  *PathRewrite `json:"path,omitempty"`
	HostToBackendHostname bool         `json:"hostToBackendHostname,omitempty"` // gateways only
}

// PathRewrite changes the path of a request, or the prefix that was matched.
type PathRewrite struct {
	Type               string  `json:"type"`
	ReplaceFullPath    *string `json:"replaceFullPath,omitempty"`
	ReplacePrefixMatch *string `json:"replacePrefixMatch,omitempty"`
}

// The types of path rewrites.
const (
	replaceFullPath    = "ReplaceFullPath"
	replacePrefixMatch = "ReplacePrefixMatch"
)

// Mirror sends copies of requests to a second destination, whose responses nobody sees.
type Mirror struct {
	Percentage *resource.Decimal `json:"percentage,omitempty"` // of requests; default all
	BackendRef BackendRef        `json:"backendRef"`
}

// RouteNames implements [policy.RouteConf].
func (c *HTTPConf) RouteNames() []string {
	out := make([]string, len(c.Rules))
	for i := range c.Rules {
		out[i] = RouteName(c.Rules[i].Matches)
	}
	return out
}

// TCPConf is what a MeshTCPRoute says about the connections to a destination.
type TCPConf struct {
	Rules []TCPRule `json:"rules"` // one: there is nothing to tell connections apart by
}

// TCPRule says where connections go.
type TCPRule struct {
	Default TCPAction `json:"default"`
}

// TCPAction holds the destinations.
type TCPAction struct {
	BackendRefs *[]BackendRef `json:"backendRefs,omitempty"`
}

// Shown implements [policy.ShownConf]: the rule alone, as Kuma shows it.
func (c *TCPConf) Shown() any {
	if len(c.Rules) == 0 {
		return TCPRule{}
	}
	return c.Rules[0]
}

// Validate checks the destinations.
func (c *TCPConf) Validate(v *resource.Validator) {
	at := v.Field("rules")
	if len(c.Rules) != 1 {
		at.Faultf("%d rules are given: give exactly one, as all connections are alike", len(c.Rules))
	}
	for i := range c.Rules {
		refs := toolkit.Or(c.Rules[i].Default.BackendRefs, nil)
		at := at.Index(i).Field("default").Field("backendRefs")
		if len(refs) == 0 {
			at.Faultf("the destinations are missing: give at least one")
		}
		checkBackends(at, refs)
	}
}

// checkTCP checks what goes together with the targetRef of the policy.
func checkTCP(p *resource.Policy, v *resource.Validator) { checkTargets(p, v) }

// BackendRef is a destination and its share of the traffic.
type BackendRef struct {
	resource.TargetRef
	Weight *uint32 `json:"weight,omitempty"` // relative to the others; default 1, 0 for none
	Port   *uint32 `json:"port,omitempty"`   // of a MeshService resource
}

// ref is the reference without the share.
func (b *BackendRef) ref() policy.BackendRef {
	return policy.BackendRef{Kind: b.Kind, Name: b.Name, Namespace: b.Namespace, Tags: b.Tags, Labels: b.Labels,
		Port: toolkit.Or(b.Port, 0)}
}

// checkBackends checks the destinations of a rule and their shares.
func checkBackends(v *resource.Validator, refs []BackendRef) {
	var total uint64
	for i := range refs {
		refs[i].validate(v.Index(i), mesh.KindMeshService, kindSubset, mesh.KindMeshExternalService,
			mesh.KindMeshMultiZoneService)
		total += uint64(toolkit.Or(refs[i].Weight, 1))
	}
	CheckTotal(v, len(refs), total)
}

// CheckTotal checks the sum of the weights of a split as Envoy does.
func CheckTotal(v *resource.Validator, n int, total uint64) {
	switch {
	case n > 0 && total == 0:
		v.Faultf("all weights are 0, so nothing would go anywhere: give one of them 1 or more")
	case total > math.MaxUint32:
		v.Faultf("the weights add up to %d, at most %d is allowed", total, uint32(math.MaxUint32))
	}
}

func (b *BackendRef) validate(v *resource.Validator, kinds ...string) {
	if b.SectionName != "" {
		v.Field("sectionName").Faultf("a destination is given by its port: give port and remove the name")
	}
	ref := b.TargetRef
	ref.SectionName = ""
	v.Ref(&ref, kinds...)
	switch {
	case b.Port == nil && b.Kind == mesh.KindMeshMultiZoneService:
		v.Field("port").Faultf("the port is missing: kind %s needs one", b.Kind)
	case b.Port != nil && b.Kind == kindSubset:
		v.Field("port").Faultf("port does not go with kind %s, which is found by tags: remove it", b.Kind)
	case b.Port != nil:
		v.Field("port").Port(*b.Port)
	}
}

// PathMatches implements [policy.PathConf].
func (c *HTTPConf) PathMatches() []policy.PathMatch {
	var out []policy.PathMatch
	for i := range c.Rules {
		for _, m := range c.Rules[i].Matches {
			p := policy.PathMatch{Type: policy.PathPrefix, Value: "/"}
			if m.Path != nil {
				p = policy.PathMatch{Type: m.Path.Type, Value: m.Path.Value}
			}
			out = append(out, p)
		}
	}
	return out
}

// RouteName is the name of the routes of a rule: a hash of its matches. It is Kuma's, so that rules
// about routes show the same matchers.
func RouteName(m []Match) string {
	b, _ := json.Marshal(m) // strings and lists of them always have a JSON form
	sum := sha256.Sum256(b)
	return base64.StdEncoding.EncodeToString(sum[:])
}
