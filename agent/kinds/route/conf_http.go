package route

import "github.com/nearside-mesh/nearside/agent/resource"

// HTTPConf is what a MeshHTTPRoute says about the requests to a destination.
type HTTPConf struct {
	Hostnames []string   `json:"hostnames,omitempty"` // gateways only
	Rules     []HTTPRule `json:"rules,omitempty" merge:"first=Matches"`
}

// HTTPRule says what happens to the requests that some of its matches take. The matches are its identity: rules of
// several policies with the same matches are one rule.
type HTTPRule struct {
	Matches []Match `json:"matches"`
	Default Action  `json:"default"`
}

// Match takes the requests for which all that it says is true. The order of its fields is that of Kuma, and with it the
// names of routes are.
type Match struct {
	Path        *PathMatch    `json:"path,omitempty"`
	Method      string        `json:"method,omitempty"`
	QueryParams []QueryMatch  `json:"queryParams,omitempty"`
	Headers     []HeaderMatch `json:"headers,omitempty"`
}

// PathMatch is about the path of a request, without the query.
type PathMatch struct {
	Value string `json:"value"`
	Type  string `json:"type"` // Exact, PathPrefix or RegularExpression
}

// The types of matches.
const (
	exact      = "Exact"
	pathPrefix = "PathPrefix" // whole elements of the path: /a takes /a and /a/b but not /ab
	pattern    = "RegularExpression"
	present    = "Present"
	absent     = "Absent"
	prefix     = "Prefix"
)

// QueryMatch is about a parameter of the query.
type QueryMatch struct {
	Type  string `json:"type"` // Exact or RegularExpression
	Name  string `json:"name"`
	Value string `json:"value"`
}

// HeaderMatch is about a header of a request.
type HeaderMatch struct {
	Type  string `json:"type,omitempty"` // Exact, Present, RegularExpression, Absent or Prefix; default Exact
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
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
