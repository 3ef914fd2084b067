package toolkit

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TagsHeader carries the tags of a client's proxy: &key=value,value&&key=value&, sorted by key.
const TagsHeader = "x-kuma-tags"

// TagsRegex is a regular expression for headers with all of the tags; "*" stands for any value. A
// key is found with its ampersand before it; a value ends at the next comma or ampersand. Where it
// begins is left open, as in Kuma, whose tests and proxies know this form: a value also holds for
// one that ends in it.
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

// OfSources matches the requests of clients that one of the selectors of a legacy policy is about.
func OfSources(sources []resource.LegacySelector) []*routev3.HeaderMatcher {
	list := make([]string, len(sources))
	for i := range sources {
		list[i] = TagsRegex(sources[i].Match)
	}
	regex := strings.Join(list, "|")
	if len(list) > 1 {
		regex = "(" + regex + ")"
	}
	return []*routev3.HeaderMatcher{Header(TagsHeader, Regex(regex))}
}

// BySources orders legacy policies whose sources name more tags first, then by name.
func BySources(a, b *resource.Resource) int {
	return cmp.Or(CompareSources(a, b), strings.Compare(a.Name, b.Name))
}

// CompareSources is [BySources] without the names.
func CompareSources(a, b *resource.Resource) int {
	x, y := sources(a), sources(b)
	return slices.Compare(y[:], x[:])
}

// sources counts the tags of the selector that names most: those with a value, and those with any.
func sources(p *resource.Resource) (most [2]int) {
	spec, ok := p.Spec.(*resource.LegacyPolicy)
	if !ok {
		return most
	}
	for i := range spec.Sources {
		var n [2]int
		for _, v := range spec.Sources[i].Match {
			if v == "*" {
				n[1]++
			} else {
				n[0]++
			}
		}
		if slices.Compare(n[:], most[:]) > 0 {
			most = n
		}
	}
	return most
}
