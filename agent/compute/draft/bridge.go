package draft

import (
	"bytes"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// The functions below return the forms of resources that an Envoy receives while old filter chains
// drain. Each returns the resource itself if there is nothing to change.

// Speaks reports whether filter chains of a listener accept HTTP requests, and whether some accept
// TCP connections.
func Speaks(listener *Resource) (http, tcp bool) {
	for _, filter := range networkFilters(listener) {
		url := textAt(filter, fieldAnyURL)
		http, tcp = http || url == hcmURL, tcp || url == tcpURL
	}
	return http, tcp
}

// KeepsChains reports whether an Envoy that replaces a listener retains all its filter chains, and
// thus their connections. It does so if the listeners differ in nothing but filter chains, and the
// next one has all of them; see docs/xds.md.
func KeepsChains(old, next *Resource) bool {
	was, is := old.Body(), next.Body()
	var oldRest, nextRest, oldDefault, nextDefault []byte
	chains := map[string]bool{}
	valid := eachField(is, func(n protowire.Number, field, value []byte) {
		switch n {
		case fieldListenerChains:
			chains[string(value)] = true
		case fieldListenerDefault:
			nextDefault = value
		default:
			nextRest = append(nextRest, field...)
		}
	})
	retained := true
	valid = eachField(was, func(n protowire.Number, field, value []byte) {
		switch n {
		case fieldListenerChains:
			retained = retained && chains[string(value)]
		case fieldListenerDefault:
			oldDefault = value
		default:
			oldRest = append(oldRest, field...)
		}
	}) && valid
	return valid && retained && bytes.Equal(oldRest, nextRest) &&
		(oldDefault == nil || bytes.Equal(oldDefault, nextDefault))
}

// SameAddress reports whether two listeners have the same address.
func SameAddress(a, b *Resource) bool {
	return slices.EqualFunc(valuesAt(a.Body(), fieldListenerAddress), valuesAt(b.Body(), fieldListenerAddress),
		bytes.Equal)
}

// networkFilters returns the packed configurations of the network filters of a listener.
func networkFilters(listener *Resource) (out [][]byte) {
	body := listener.Body()
	for _, chain := range append(valuesAt(body, fieldListenerChains), valuesAt(body, fieldListenerDefault)...) {
		out = append(out, valuesAt(chain, fieldChainFilters, fieldFilterConfig)...)
	}
	return out
}

// RoutesOf returns the route configurations in lists to which a listener refers.
func RoutesOf(listener *Resource, lists *Lists) []*Resource {
	return named(lists[RankRoute], listener.Refs().Names(envoy.KindRoute))
}

// LeadsTo returns the clusters in lists to which a listener or its routes refer.
func LeadsTo(listener *Resource, lists *Lists) []*Resource {
	names := slices.Clone(listener.Refs().Names(envoy.KindCluster))
	for _, r := range RoutesOf(listener, lists) {
		names = append(names, r.Refs().Names(envoy.KindCluster)...)
	}
	slices.Sort(names)
	return named(lists[RankCluster], slices.Compact(names))
}

// named returns the resources of a list that have one of the names, in the order of the names.
func named(list []*Resource, names []string) (out []*Resource) {
	for _, name := range names {
		if r := Find(list, name); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// FollowDownstream returns a cluster that uses the HTTP version of the client for its endpoints.
func FollowDownstream(cluster *Resource) *Resource { return speaking(cluster, downstreamField) }

// SpeakAs returns a cluster with the HTTP version of a previous form of it.
func SpeakAs(cluster, before *Resource) *Resource {
	packed := packedUnder(before.Body(), fieldHTTPOptions)[NameHTTPOptions]
	_, version, _ := splitOptions(unpackAs(packed, httpOptionsURL))
	return speaking(cluster, version)
}

// speaking returns a cluster with another HTTP version, which is an encoded field of its HTTP
// options.
func speaking(cluster *Resource, version []byte) *Resource {
	body := cluster.Body()
	packed, has := packedUnder(body, fieldHTTPOptions)[NameHTTPOptions]
	options := unpackAs(packed, httpOptionsURL)
	rest, _, ok := splitOptions(options)
	if !ok || len(version) == 0 || has && options == nil || !isMessage(body) {
		return cluster
	}
	next := append(rest, version...)
	if bytes.Equal(next, options) {
		return cluster
	}
	body = fieldEdits{fieldHTTPOptions: func(entry []byte) ([]byte, bool) {
		return entry, textAt(entry, fieldKey) != NameHTTPOptions
	}}.apply(body)
	return edited(cluster, appendPacked(slices.Clip(body), fieldHTTPOptions, NameHTTPOptions, httpOptionsURL, next))
}

// splitOptions splits HTTP options into the HTTP version, which is a oneof, and the other fields.
func splitOptions(options []byte) (rest, version []byte, ok bool) {
	ok = eachField(options, func(n protowire.Number, field, _ []byte) {
		if n >= fieldExplicitVersion && n <= fieldAutoVersion {
			version = append(version, field...)
		} else {
			rest = append(rest, field...)
		}
	})
	return rest, version, ok
}

// Guards reports whether a listener has RBAC filters for requests.
func Guards(listener *Resource) bool {
	for _, filter := range networkFilters(listener) {
		for _, f := range valuesAt(unpackAs(filter, hcmURL), fieldManagerFilters, fieldFilterConfig) {
			if textAt(f, fieldAnyURL) == rbacURL {
				return true
			}
		}
	}
	return false
}

// Guard returns routes with the RBAC rules of the listener, so that these apply also to the filter
// chains of an older form of the listener, which use the same routes. Without an older form it
// always adds the rules.
func Guard(routes, listener, older *Resource) *Resource {
	now, before := guardsOf(listener, routes.Name), map[string][]byte{}
	if older != nil {
		before = guardsOf(older, routes.Name)
	}
	body := slices.Clip(routes.Body())
	if !isMessage(body) {
		return routes
	}
	patched := packedUnder(body, fieldRoutesPerFilter) // for all filter chains; takes precedence
	for _, name := range slices.Sorted(maps.Keys(now)) {
		was, is := before[name]
		if unchanged := older != nil && (!is || bytes.Equal(was, now[name])); unchanged || patched[name] != nil {
			continue
		}
		guard := protowire.AppendBytes(protowire.AppendTag(nil, fieldPerRouteRBAC, protowire.BytesType), now[name])
		body = appendPacked(body, fieldRoutesPerFilter, name, rbacPerRouteURL, guard)
	}
	return edited(routes, body)
}

// guardsOf returns the RBAC filters for requests on those chains of a listener that use certain
// routes, by name.
func guardsOf(listener *Resource, routes string) map[string][]byte {
	out := map[string][]byte{}
	for _, filter := range networkFilters(listener) {
		manager := unpackAs(filter, hcmURL)
		if manager == nil || textAt(manager, fieldManagerRDS, fieldRDSName) != routes {
			continue
		}
		for _, f := range valuesAt(manager, fieldManagerFilters) {
			if guard := unpackAs(last(valuesAt(f, fieldFilterConfig)), rbacURL); guard != nil {
				out[textAt(f, fieldFilterName)] = guard
			}
		}
	}
	return out
}
