package draft

import (
	"bytes"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// What follows makes the forms of resources that an Envoy is sent while connections are on filter
// chains that it has let go of. Each returns the resource as it is where it has nothing to change.

var (
	managerURL  = []byte("/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager")
	tcpProxyURL = []byte("/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy")
	httpRBACURL = []byte("/envoy.extensions.filters.http.rbac.v3.RBAC")
)

// Speaks says whether the filter chains of a listener take requests, and whether they take
// connections as they are.
func Speaks(listener *Resource) (http, tcp bool) {
	body := listener.Body()
	return bytes.Contains(body, managerURL), bytes.Contains(body, tcpProxyURL)
}

// RoutesOf returns the routes of some lists that a listener may name.
func RoutesOf(listener *Resource, lists *Lists) []*Resource {
	return mentioned(&Lists{RankListener: {listener}}, RankRoute, lists[RankRoute])
}

// LeadsTo returns the clusters of some lists that a listener, or a route of it, may name.
func LeadsTo(listener *Resource, lists *Lists) []*Resource {
	from := Lists{RankListener: {listener}, RankRoute: RoutesOf(listener, lists)}
	return mentioned(&from, RankCluster, lists[RankCluster])
}

// FollowDownstream returns a cluster that speaks to its endpoints what the client speaks.
func FollowDownstream(cluster *Resource) *Resource { return speaking(cluster, downstreamField) }

// SpeakAs returns a cluster that speaks the version of HTTP that another form of it spoke.
func SpeakAs(cluster, before *Resource) *Resource {
	packed := packedUnder(before.Body(), fieldHTTPOptions)[NameHTTPOptions]
	_, version, _ := splitOptions(unpackAs(packed, httpOptionsURL))
	return speaking(cluster, version)
}

// speaking returns a cluster with another version of HTTP in its options, as the field that says
// it.
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
	return sealedAs(cluster, appendPacked(slices.Clip(body), fieldHTTPOptions, NameHTTPOptions, httpOptionsURL, next))
}

// splitOptions splits HTTP options into the version of HTTP, which is a oneof, and all else.
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

// Guards says whether a listener has RBAC filters for requests.
func Guards(listener *Resource) bool { return bytes.Contains(listener.Body(), httpRBACURL) }

// Guard returns routes with what the listener says now about who may use them, so that it holds on
// the chains of an older form of the listener too, which have the same routes. Without an older
// form it says so in any case.
func Guard(routes, listener, older *Resource) *Resource {
	now, before := guardsOf(listener, routes.Name), map[string][]byte{}
	if older != nil {
		before = guardsOf(older, routes.Name)
	}
	body := slices.Clip(routes.Body())
	if !isMessage(body) {
		return routes
	}
	patched := packedUnder(body, fieldRoutesPerFilter) // for all filter chains, which takes precedence
	for _, name := range slices.Sorted(maps.Keys(now)) {
		was, is := before[name]
		if unchanged := older != nil && (!is || bytes.Equal(was, now[name])); unchanged || patched[name] != nil {
			continue
		}
		guard := protowire.AppendBytes(protowire.AppendTag(nil, fieldPerRouteRBAC, protowire.BytesType), now[name])
		body = appendPacked(body, fieldRoutesPerFilter, name, rbacPerRouteURL, guard)
	}
	return sealedAs(routes, body)
}

// guardsOf returns the RBAC filters for requests of the chains of a listener that have certain
// routes, by name.
func guardsOf(listener *Resource, routes string) map[string][]byte {
	out := map[string][]byte{}
	body := listener.Body()
	for _, chain := range append(valuesAt(body, fieldListenerChains), valuesAt(body, fieldListenerDefault)...) {
		for _, packed := range valuesAt(chain, fieldChainFilters, fieldFilterConfig) {
			manager := unpackAs(packed, hcmURL)
			if manager == nil || textAt(manager, fieldManagerRDS, fieldRDSName) != routes {
				continue
			}
			for _, f := range valuesAt(manager, fieldManagerFilters) {
				if guard := unpackAs(last(valuesAt(f, fieldFilterConfig)), rbacURL); guard != nil {
					out[textAt(f, fieldFilterName)] = guard
				}
			}
		}
	}
	return out
}
