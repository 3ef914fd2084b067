package policy

import (
	"cmp"
	"fmt"
	"slices"
)

// Localities says where a proxy prefers the endpoints of a cluster to be. Endpoints of its own zone
// have priority 0. NewLocalities makes them, and they must not be changed afterwards.
type Localities struct {
	Zone string // of the proxy
	// Affinity shares the traffic out within the zone: the first entry whose tag an endpoint has
	// decides.
	Affinity []Affinity
	// LocalWeight is the weight of the endpoints of the zone without affinity; 0 leaves localities
	// without weights.
	LocalWeight uint32
	// Failover are the zones that take over: the first entry that holds the zone of an endpoint
	// decides. Endpoints of zones that none holds get no traffic.
	Failover []Failover
	// Overprovisioning is Envoy's factor in percent: a priority gets all the traffic as long as its
	// share of healthy endpoints times the factor is 100 or more. 0 leaves Envoy's own, which is 140.
	Overprovisioning uint32

	key string
}

// NewLocalities returns a copy that can be told from others by its key.
func NewLocalities(l Localities) *Localities {
	l.key = ""
	l.key = fmt.Sprintf("%#v", l)
	return &l
}

// Affinity is a group of endpoints that share a tag with the proxy.
type Affinity struct {
	Key, Value string
	Weight     uint32
}

// Failover is a group of zones that take over together.
type Failover struct {
	Priority uint32
	Zones    []string
	Except   bool // all zones but Zones
}

// Locality is a group of endpoints of one cluster.
type Locality struct {
	Zone, SubZone    string
	Weight, Priority uint32
}

// Compare orders localities by priority, then by place.
func (l Locality) Compare(o Locality) int {
	return cmp.Or(cmp.Compare(l.Priority, o.Priority), cmp.Compare(l.Zone, o.Zone), cmp.Compare(l.SubZone, o.SubZone),
		cmp.Compare(l.Weight, o.Weight))
}

// Place returns the group of an endpoint; false when it gets no traffic. An endpoint without a
// zone, such as one outside the mesh, is in no other zone and counts as one of the proxy's.
func (l *Localities) Place(zone string, tags map[string]string) (Locality, bool) {
	if zone == "" || zone == l.Zone {
		for _, a := range l.Affinity {
			if tags[a.Key] == a.Value {
				return Locality{Zone: l.Zone, SubZone: a.Key + "=" + a.Value, Weight: a.Weight}, true
			}
		}
		return Locality{Zone: l.Zone, Weight: l.LocalWeight}, true
	}
	for _, f := range l.Failover {
		if slices.Contains(f.Zones, zone) != f.Except {
			return Locality{Zone: zone, Priority: f.Priority}, true
		}
	}
	return Locality{}, false
}

// Key identifies what the localities say: equal keys place equal endpoints alike. It is "" for nil.
func (l *Localities) Key() string {
	if l == nil {
		return ""
	}
	return l.key
}
