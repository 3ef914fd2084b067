package route

import (
	"fmt"
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/substitution"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// apply applies a filter to a route. action is the route's forwarding action, even if a redirect
// has replaced it. of is the match of the route.
func (f *filter) apply(out *routev3.Route, action *routev3.RouteAction, of *Match) {
	switch {
	case f.RequestHeaderModifier != nil:
		add, remove := f.RequestHeaderModifier.envoy()
		out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, add...)
		out.RequestHeadersToRemove = append(out.RequestHeadersToRemove, remove...)
	case f.ResponseHeaderModifier != nil:
		add, remove := f.ResponseHeaderModifier.envoy()
		out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, add...)
		out.ResponseHeadersToRemove = append(out.ResponseHeadersToRemove, remove...)
	case f.RequestRedirect != nil:
		out.Action = &routev3.Route_Redirect{Redirect: f.RequestRedirect.envoy(out.Match, of)}
	case f.URLRewrite != nil:
		f.URLRewrite.apply(action, out.Match, of)
	case f.RequestMirror != nil && f.mirror != "":
		action.RequestMirrorPolicies = append(action.RequestMirrorPolicies, &routev3.RouteAction_RequestMirrorPolicy{
			Cluster: f.mirror, RuntimeFraction: fraction(f.RequestMirror.Percentage),
		})
	}
}

func (m *HeaderModifier) envoy() (add []*corev3.HeaderValueOption, remove []string) {
	add = make([]*corev3.HeaderValueOption, 0, len(m.Set)+len(m.Add))
	for _, h := range m.Set {
		add = append(add, HeaderOption(h.Name, h.Value, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD))
	}
	for _, h := range m.Add {
		add = append(add, HeaderOption(h.Name, h.Value, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD))
	}
	return add, m.Remove
}

// HeaderOption returns a change of a header.
func HeaderOption(name, value string, how corev3.HeaderValueOption_HeaderAppendAction) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, Value: value}, AppendAction: how}
}

func (r *Redirect) envoy(m *routev3.RouteMatch, of *Match) *routev3.RedirectAction {
	out := &routev3.RedirectAction{HostRedirect: toolkit.Or(r.Hostname, ""), PortRedirect: toolkit.Or(r.Port, 0)}
	if r.Scheme != "" {
		out.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: r.Scheme}
	}
	out.ResponseCode, _ = redirectCode(toolkit.Or(r.StatusCode, 302))
	switch whole, prefix := r.Path.envoy(m, of); {
	case whole != nil:
		out.PathRewriteSpecifier = &routev3.RedirectAction_RegexRewrite{RegexRewrite: whole}
	case prefix != "":
		out.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: prefix}
	}
	return out
}

func redirectCode(status int) (routev3.RedirectAction_RedirectResponseCode, bool) {
	switch status {
	case 301:
		return routev3.RedirectAction_MOVED_PERMANENTLY, true
	case 302:
		return routev3.RedirectAction_FOUND, true
	case 303:
		return routev3.RedirectAction_SEE_OTHER, true
	case 307:
		return routev3.RedirectAction_TEMPORARY_REDIRECT, true
	case 308:
		return routev3.RedirectAction_PERMANENT_REDIRECT, true
	}
	return 0, false
}

func (r *Rewrite) apply(action *routev3.RouteAction, m *routev3.RouteMatch, of *Match) {
	if r.Hostname != nil {
		action.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: *r.Hostname}
	}
	if r.Path != nil { // set both, because Envoy allows one of them and the last filter applies
		action.RegexRewrite, action.PrefixRewrite = r.Path.envoy(m, of)
	}
}

// envoy returns the replacement of the whole path, or of the matched prefix. If the path equals the
// prefix, it is replaced as a whole. In a longer path, the match includes the slash after the
// prefix, which is preserved.
func (p *PathRewrite) envoy(m *routev3.RouteMatch,
	of *Match) (whole *matcherv3.RegexMatchAndSubstitute, prefix string) {
	switch {
	case p == nil:
	case p.Type == replaceFullPath && p.ReplaceFullPath != nil:
		return instead(*p.ReplaceFullPath), ""
	case p.Type == replacePrefixMatch && p.ReplacePrefixMatch != nil && of.Path != nil && of.Path.Type == pathPrefix:
		if m.GetPath() != "" {
			return instead(*p.ReplacePrefixMatch), ""
		}
		return nil, strings.TrimSuffix(*p.ReplacePrefixMatch, "/") + "/"
	}
	return nil, ""
}

// instead returns a rewrite of the whole path.
func instead(path string) *matcherv3.RegexMatchAndSubstitute {
	return &matcherv3.RegexMatchAndSubstitute{Pattern: regex(".*"), Substitution: literal(path)}
}

// fraction converts a percentage of requests; nil for all.
func fraction(p *resource.Decimal) *corev3.RuntimeFractionalPercent {
	if p == nil {
		return nil
	}
	return &corev3.RuntimeFractionalPercent{DefaultValue: toolkit.Fraction(p)}
}

// MaxHeaders limits each list of a header modifier.
const MaxHeaders = 16

// checkFilters validates the filters of a rule.
func checkFilters(list *resource.Validator, r *HTTPRule) {
	prefixes := true // whether all matches have path prefixes
	for i := range r.Matches {
		p := r.Matches[i].Path
		prefixes = prefixes && p != nil && p.Type == pathPrefix
	}
	for i, f := range toolkit.Or(r.Default.Filters, nil) {
		f.validate(list.Index(i), prefixes)
	}
}

func (f *Filter) validate(v *resource.Validator, prefixes bool) {
	if !v.Field("type").OneOf(f.Type, requestHeaders, responseHeaders, redirect, rewrite, mirror) {
		return
	}
	for _, field := range []struct {
		kind, name string
		set        bool
	}{
		{requestHeaders, "requestHeaderModifier", f.RequestHeaderModifier != nil},
		{responseHeaders, "responseHeaderModifier", f.ResponseHeaderModifier != nil},
		{redirect, "requestRedirect", f.RequestRedirect != nil},
		{rewrite, "urlRewrite", f.URLRewrite != nil},
		{mirror, "requestMirror", f.RequestMirror != nil},
	} {
		switch {
		case field.kind == f.Type && !field.set:
			v.Field(field.name).Faultf("the filter is missing: type %s requires it", f.Type)
		case field.kind != f.Type && field.set:
			v.Field(field.name).Faultf("not allowed with type %s: remove it, or move it into a separate filter", f.Type)
		}
	}
	f.RequestHeaderModifier.validate(v.Field("requestHeaderModifier"))
	f.ResponseHeaderModifier.validate(v.Field("responseHeaderModifier"))
	f.RequestRedirect.validate(v.Field("requestRedirect"), prefixes)
	f.URLRewrite.validate(v.Field("urlRewrite"), prefixes)
	f.RequestMirror.validate(v.Field("requestMirror"))
}

func (m *HeaderModifier) validate(v *resource.Validator) {
	if m == nil {
		return
	}
	if len(m.Set)+len(m.Add)+len(m.Remove) == 0 {
		v.Faultf("no change is given: give set, add, or remove")
	}
	seen := map[string]bool{}
	name := func(at *resource.Validator, s string) {
		CheckMutable(at, s)
		if seen[s] {
			at.Faultf("the header %q is given twice: give it once, with its values separated by commas", s)
		}
		seen[s] = true
	}
	for _, list := range []struct {
		at      *resource.Validator
		headers []Header
	}{{v.Field("set"), m.Set}, {v.Field("add"), m.Add}} {
		toolkit.AtMost(list.at, len(list.headers), MaxHeaders, "headers")
		for i, h := range list.headers {
			name(list.at.Index(i).Field("name"), h.Name)
			CheckHeaderValue(list.at.Index(i).Field("value"), h.Value)
		}
	}
	toolkit.AtMost(v.Field("remove"), len(m.Remove), MaxHeaders, "headers")
	for i, s := range m.Remove {
		name(v.Field("remove").Index(i), s)
	}
}

func (r *Redirect) validate(v *resource.Validator, prefixes bool) {
	if r == nil {
		return
	}
	if r.Scheme != "" {
		v.Field("scheme").OneOf(r.Scheme, "http", "https")
	}
	if r.Hostname != nil {
		checkHostname(v.Field("hostname"), *r.Hostname)
	}
	r.Path.validate(v.Field("path"), prefixes)
	if r.Port != nil {
		v.Field("port").Port(*r.Port)
	}
	if r.StatusCode != nil {
		if _, ok := redirectCode(*r.StatusCode); !ok {
			v.Field("statusCode").Faultf("%d is not allowed: give one of 301, 302, 303, 307, 308", *r.StatusCode)
		}
	}
}

func (r *Rewrite) validate(v *resource.Validator, prefixes bool) {
	if r == nil {
		return
	}
	if r.Hostname != nil {
		checkHostname(v.Field("hostname"), *r.Hostname)
		if r.HostToBackendHostname {
			v.Field("hostToBackendHostname").Faultf("hostname is also given: remove one of them")
		}
	}
	r.Path.validate(v.Field("path"), prefixes)
}

func (p *PathRewrite) validate(v *resource.Validator, prefixes bool) {
	if p == nil || !v.Field("type").OneOf(p.Type, replaceFullPath, replacePrefixMatch) {
		return
	}
	full, prefix := v.Field("replaceFullPath"), v.Field("replacePrefixMatch")
	switch {
	case p.Type == replaceFullPath && p.ReplaceFullPath == nil:
		full.Faultf("the path is missing: type %s requires it", p.Type)
	case p.Type == replacePrefixMatch && p.ReplacePrefixMatch == nil:
		prefix.Faultf("the prefix is missing: type %s requires it", p.Type)
	}
	CheckPath(full, p.ReplaceFullPath)
	CheckPath(prefix, p.ReplacePrefixMatch)
	if p.ReplacePrefixMatch != nil && !prefixes {
		prefix.Faultf("no prefix to replace: all matches of the rule must have path type %s", pathPrefix)
	}
}

// CheckPath validates a replacement path.
func CheckPath(v *resource.Validator, s *string) {
	switch {
	case s == nil:
	case !strings.HasPrefix(*s, "/"):
		v.Faultf("%q is not absolute: the path must begin with /, and / removes the matched prefix", *s)
	case strings.ContainsAny(*s, "\x00\r\n"):
		v.Faultf("%q contains a line break or a NUL character", *s)
	}
}

func (m *Mirror) validate(v *resource.Validator) {
	if m == nil {
		return
	}
	v.Field("percentage").Percentage(m.Percentage)
	m.BackendRef.validate(v.Field("backendRef"), mesh.KindMeshService, kindSubset, mesh.KindMeshExternalService,
		mesh.KindMeshMultiZoneService)
	if m.BackendRef.Weight != nil {
		v.Field("backendRef").Field("weight").
			Faultf("a mirror has only one destination: remove the weight, and use percentage to mirror some of the requests")
	}
}

// CheckSubstitution validates the replacement of a pattern's match, in RE2 syntax: \0 is the match,
// \1 its first group, \\ a backslash.
func CheckSubstitution(v *resource.Validator, pattern, s string) {
	if strings.ContainsAny(s, "\x00\r\n") {
		v.Faultf("%q contains a line break or a NUL character", s)
		return
	}
	groups := -1 // unknown; an invalid pattern is reported separately
	if re, err := regexp.Compile(pattern); err == nil {
		groups = re.NumSubexp()
	}
	if reason := substitutionFault(s, groups); reason != "" {
		v.Faultf("%q: %s", s, reason)
	}
}

// substitutionFault returns the problem of a substitution for a pattern with a number of groups, or
// "".
func substitutionFault(s string, groups int) string {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		i++
		switch {
		case i == len(s):
			return `it ends with a single \: write \\ for a backslash`
		case s[i] == '\\':
		case s[i] < '0' || s[i] > '9':
			return fmt.Sprintf(`\%c is not valid: use a group, \0 to \9, or a backslash, \\`, s[i])
		case groups >= 0 && int(s[i]-'0') > groups:
			return fmt.Sprintf(`the pattern has no group \%c: it has %d`, s[i], groups)
		}
	}
	return ""
}

// literal escapes a string as a substitution.
func literal(s string) string { return strings.ReplaceAll(s, `\`, `\\`) }

// maxHeaderValue is Envoy's limit for the value of a header.
const maxHeaderValue = 16384

// CheckMutable validates the name of a changed header. Envoy does not allow changes of
// pseudo-headers and Host.
func CheckMutable(v *resource.Validator, name string) {
	if strings.HasPrefix(name, ":") || strings.EqualFold(name, "host") {
		v.Faultf("%q cannot be changed as a header: use a rewrite of the host or path instead", name)
		return
	}
	v.HeaderName(name)
}

// CheckHeaderValue validates a value, which Envoy interprets as a format string.
func CheckHeaderValue(v *resource.Validator, s string) {
	if len(s) > maxHeaderValue {
		v.Faultf("the value has %d characters, and at most %d are allowed", len(s), maxHeaderValue)
		return
	}
	v.HeaderValue(s)
	if _, err := substitution.ParseFormat(s); err != nil {
		v.Faultf("%q: %v; write %%%% for a percent sign", s, err)
	}
}
