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

// HTTPConf is the conf of a MeshHTTPRoute for the requests to a destination.
type HTTPConf struct {
	Hostnames []string   `json:"hostnames,omitempty"` // only for gateways
	Rules     []HTTPRule `json:"rules,omitempty" merge:"first=Matches"`
}

// HTTPRule is the action for requests that one of its matches selects. The matches identify the
// rule: rules of several policies with the same matches are merged.
type HTTPRule struct {
	Matches []Match `json:"matches"`
	Default Action  `json:"default"`
}

// Match selects requests that satisfy all its conditions. Its fields have the same order as in
// Kuma, because the names of routes depend on it.
type Match struct {
	Path        *PathMatch            `json:"path,omitempty"`
	Method      string                `json:"method,omitempty"`
	QueryParams []QueryMatch          `json:"queryParams,omitempty"`
	Headers     []toolkit.HeaderMatch `json:"headers,omitempty"`
}

// PathMatch is a condition on the path of a request, excluding the query.
type PathMatch struct {
	Value string `json:"value"`
	Type  string `json:"type"` // Exact, PathPrefix or RegularExpression
}

// Types of matches.
const (
	exact      = toolkit.MatchExact
	pathPrefix = "PathPrefix" // whole path segments: /a matches /a and /a/b but not /ab
	pattern    = toolkit.MatchRegex
)

// QueryMatch is a condition on a query parameter.
type QueryMatch struct {
	Type  string `json:"type"` // Exact or RegularExpression
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Action is the action for a request. An empty list overrides a list from another policy.
type Action struct {
	Filters     *[]Filter     `json:"filters,omitempty"`
	BackendRefs *[]BackendRef `json:"backendRefs,omitempty"` // Default the service itself
}

// Filter modifies requests or responses. Only the field for Type must be set.
type Filter struct {
	Type                   string          `json:"type"`
	RequestHeaderModifier  *HeaderModifier `json:"requestHeaderModifier,omitempty"`
	ResponseHeaderModifier *HeaderModifier `json:"responseHeaderModifier,omitempty"`
	RequestRedirect        *Redirect       `json:"requestRedirect,omitempty"`
	URLRewrite             *Rewrite        `json:"urlRewrite,omitempty"`
	RequestMirror          *Mirror         `json:"requestMirror,omitempty"`
}

// Types of filters.
const (
	requestHeaders  = "RequestHeaderModifier"
	responseHeaders = "ResponseHeaderModifier"
	redirect        = "RequestRedirect"
	rewrite         = "URLRewrite"
	mirror          = "RequestMirror"
)

// HeaderModifier changes headers. Each header may occur only once.
type HeaderModifier struct {
	Set    []Header `json:"set,omitempty"` // replaces existing headers
	Add    []Header `json:"add,omitempty"` // is added to existing headers
	Remove []string `json:"remove,omitempty"`
}

// Header is a header with its value, which may contain Envoy's substitutions such as %PROTOCOL%.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Redirect responds with a redirect to another URL.
type Redirect struct {
	Scheme     string       `json:"scheme,omitempty"` // http or https. Default the scheme of the request
	Hostname   *string      `json:"hostname,omitempty"`
	Path       *PathRewrite `json:"path,omitempty"`
	Port       *uint32      `json:"port,omitempty"`
	StatusCode *int         `json:"statusCode,omitempty"` // 301, 302, 303, 307, or 308. Default 302
}

// Rewrite changes the host or path of a request.
type Rewrite struct {
	Hostname              *string      `json:"hostname,omitempty"`
	Path                  *PathRewrite `json:"path,omitempty"`
	HostToBackendHostname bool         `json:"hostToBackendHostname,omitempty"` // only for gateways
}

// PathRewrite replaces the path of a request, or the matched prefix.
type PathRewrite struct {
	Type               string  `json:"type"`
	ReplaceFullPath    *string `json:"replaceFullPath,omitempty"`
	ReplacePrefixMatch *string `json:"replacePrefixMatch,omitempty"`
}

// Types of path rewrites.
const (
	replaceFullPath    = "ReplaceFullPath"
	replacePrefixMatch = "ReplacePrefixMatch"
)

// Mirror sends copies of requests to a second destination and ignores its responses.
type Mirror struct {
	Percentage *resource.Decimal `json:"percentage,omitempty"` // percentage of requests. Default 100
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

// TCPConf is the conf of a MeshTCPRoute for the connections to a destination.
type TCPConf struct {
	Rules []TCPRule `json:"rules"` // exactly one, because connections are not distinguished
}

// TCPRule is the action for connections.
type TCPRule struct {
	Default TCPAction `json:"default"`
}

// TCPAction holds the destinations of connections.
type TCPAction struct {
	BackendRefs *[]BackendRef `json:"backendRefs,omitempty"`
}

// Shown implements [policy.ShownConf]: it returns only the rule, as in Kuma.
func (c *TCPConf) Shown() any {
	if len(c.Rules) == 0 {
		return TCPRule{}
	}
	return c.Rules[0]
}

// Validate validates the destinations.
func (c *TCPConf) Validate(v *resource.Validator) {
	at := v.Field("rules")
	if len(c.Rules) != 1 {
		at.Faultf("%d rules are given: give exactly one, because connections are not distinguished", len(c.Rules))
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

// checkTCP validates the confs in combination with the targetRef of the policy.
func checkTCP(p *resource.Policy, v *resource.Validator) { checkTargets(p, v) }

// BackendRef is a destination with its weight.
type BackendRef struct {
	resource.TargetRef
	Weight *uint32 `json:"weight,omitempty"` // relative to other destinations. Default 1; 0 disables the destination
	Port   *uint32 `json:"port,omitempty"`   // port of a MeshService resource
}

// ref returns the reference without the weight.
func (b *BackendRef) ref() policy.BackendRef {
	return policy.BackendRef{Kind: b.Kind, Name: b.Name, Namespace: b.Namespace, Tags: b.Tags, Labels: b.Labels,
		Port: toolkit.Or(b.Port, 0)}
}

// checkBackends validates the destinations of a rule and their weights.
func checkBackends(v *resource.Validator, refs []BackendRef) {
	var total uint64
	for i := range refs {
		refs[i].validate(v.Index(i), mesh.KindMeshService, kindSubset, mesh.KindMeshExternalService,
			mesh.KindMeshMultiZoneService)
		total += uint64(toolkit.Or(refs[i].Weight, 1))
	}
	CheckTotal(v, len(refs), total)
}

// CheckTotal validates the sum of the weights of a split, as Envoy does.
func CheckTotal(v *resource.Validator, n int, total uint64) {
	switch {
	case n > 0 && total == 0:
		v.Faultf("all weights are 0, so there is no destination: give at least one weight above 0")
	case total > math.MaxUint32:
		v.Faultf("the sum of the weights is %d, and at most %d is allowed", total, uint32(math.MaxUint32))
	}
}

func (b *BackendRef) validate(v *resource.Validator, kinds ...string) {
	if b.SectionName != "" {
		v.Field("sectionName").Faultf("sectionName is not allowed for a destination: give port instead")
	}
	ref := b.TargetRef
	ref.SectionName = ""
	v.Ref(&ref, kinds...)
	if b.Name == "" && b.Namespace != "" && len(b.Labels) == 0 {
		v.Field("name").Faultf("the name is missing: a destination is one service of the namespace %q", b.Namespace)
	}
	switch {
	case b.Port == nil && b.Kind == mesh.KindMeshMultiZoneService:
		v.Field("port").Faultf("the port is missing: kind %s requires one", b.Kind)
	case b.Port != nil && b.Kind == kindSubset:
		v.Field("port").Faultf("port is not allowed with kind %s, which is selected by tags: remove it", b.Kind)
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

// RouteName returns the name of the routes of a rule: a hash of its matches. It is equal to Kuma's,
// so that rules for routes have the same matchers.
func RouteName(m []Match) string {
	b, _ := json.Marshal(m) // encoding strings and lists of strings never fails
	sum := sha256.Sum256(b)
	return base64.StdEncoding.EncodeToString(sum[:])
}
