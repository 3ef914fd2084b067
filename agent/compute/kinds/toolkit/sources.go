package toolkit

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TagsHeader carries the tags of the client's proxy in the form &key=value,value&&key=value&,
// sorted by key.
const TagsHeader = "x-kuma-tags"

// TagsRegex returns a regular expression for TagsHeader values that contain all of the tags; "*"
// matches any value. The start of a value is not anchored, so a value also matches values that end
// with it. Kuma behaves the same.
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

// OfSources returns matchers for requests of clients that one of a legacy policy's selectors
// matches.
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

// SelectsAll reports whether one of the selectors matches every service of the mesh.
func SelectsAll(list []resource.LegacySelector) bool {
	return slices.ContainsFunc(list, func(s resource.LegacySelector) bool {
		return len(s.Match) == 1 && s.Match[resource.TagService] == "*"
	})
}

// BySources orders legacy policies by decreasing number of source tags, then by name.
func BySources(a, b *resource.Resource) int {
	return cmp.Or(CompareSources(a, b), strings.Compare(a.Name, b.Name))
}

// CompareSources orders legacy policies like [BySources], without the names.
func CompareSources(a, b *resource.Resource) int {
	x, y := sources(a), sources(b)
	return slices.Compare(y[:], x[:])
}

// sources returns the tag counts of the source selector with the most tags: tags with a value, and
// tags with "*".
func sources(p *resource.Resource) (best [2]int) {
	spec, ok := p.Spec.(*resource.LegacyPolicy)
	if !ok {
		return best
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
		if slices.Compare(n[:], best[:]) > 0 {
			best = n
		}
	}
	return best
}
