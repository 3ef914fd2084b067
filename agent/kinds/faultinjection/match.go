package faultinjection

import (
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
)

// TagsHeader carries the tags of a client's proxy: &key=value,value&&key=value&, sorted by key.
const TagsHeader = "x-kuma-tags"

// ofSubset matches the requests of clients of a subset: one matcher for all the tags that they have, and one for each
// that they have not.
func ofSubset(s policy.Subset) []*routev3.HeaderMatcher {
	has := map[string]string{}
	var not []policy.Tag
	for _, t := range s {
		if t.Not {
			not = append(not, t)
		} else {
			has[t.Key] = t.Value
		}
	}
	var out []*routev3.HeaderMatcher
	if len(has) > 0 {
		out = append(out, header(TagsRegex(has), false))
	}
	for _, t := range not {
		out = append(out, header(TagsRegex(map[string]string{t.Key: t.Value}), true))
	}
	return out
}

func header(regex string, invert bool) *routev3.HeaderMatcher {
	out := toolkit.Header(TagsHeader, toolkit.Regex(regex))
	out.InvertMatch = invert
	return out
}

// TagsRegex is a regular expression for headers with all of the tags; "*" stands for any value. A key is found with its
// ampersand before it; a value ends at the next comma or ampersand. Where it begins is left open, as in Kuma, whose
// tests and proxies know this form: a value also holds for one that ends in it.
func TagsRegex(tags map[string]string) string {
	var b strings.Builder
	b.WriteString(".*")
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		b.WriteString("&" + k + "=")
		if v := tags[k]; v != "*" {
			b.WriteString("[^&]*" + strings.ReplaceAll(v, ".", `\.`) + "[,&]")
		}
		b.WriteString(".*")
	}
	return b.String()
}
