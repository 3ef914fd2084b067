package toolkit

import (
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
