package faultinjection

import (
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// tagsHeader carries the tags of a client's proxy: &key=value,value&&key=value&, sorted by key.
const tagsHeader = "x-kuma-tags"

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
		out = append(out, header(tagsRegex(has), false))
	}
	for _, t := range not {
		out = append(out, header(tagsRegex(map[string]string{t.Key: t.Value}), true))
	}
	return out
}

func header(regex string, invert bool) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{
		Name: tagsHeader,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: regex}},
		}},
		InvertMatch: invert,
	}
}

// ofSources matches the requests of clients that one of the selectors of a legacy policy is about, in the older field
// that Kuma has for it.
func ofSources(sources []resource.LegacySelector) []*routev3.HeaderMatcher {
	list := make([]string, len(sources))
	for i := range sources {
		list[i] = tagsRegex(sources[i].Match)
	}
	regex := strings.Join(list, "|")
	if len(list) > 1 {
		regex = "(" + regex + ")"
	}
	return []*routev3.HeaderMatcher{{
		Name: tagsHeader,
		//lint:ignore SA1019 what proxies run today stays byte for byte the same
		HeaderMatchSpecifier: &routev3.HeaderMatcher_SafeRegexMatch{SafeRegexMatch: &matcherv3.RegexMatcher{Regex: regex}},
	}}
}

// tagsRegex is a regular expression for headers with all of the tags; "*" stands for any value. A key is found with its
// ampersand before it; a value ends at the next comma or ampersand. Where it begins is left open, as in Kuma, whose
// tests and proxies know this form: a value also holds for one that ends in it.
func tagsRegex(tags map[string]string) string {
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
