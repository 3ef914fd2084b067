package policy

import (
	"cmp"
	"fmt"
	"slices"
)

// Localities defines which endpoints of a cluster a proxy prefers by zone. Endpoints in the proxy's
// own zone have priority 0. A Localities is created by NewLocalities and immutable afterwards.
type Localities struct {
	Zone string // of the proxy
	// Affinity distributes the traffic within the zone. An endpoint belongs to the first entry
	// whose tag it has.
	Affinity []Affinity
	// LocalWeight is the weight of the zone's endpoints without affinity; 0 leaves localities
	// without weights.
	LocalWeight uint32
	// Failover lists the fallback zones. An endpoint belongs to the first entry that includes its
	// zone, and gets no traffic if no entry does.
	Failover []Failover
	// Overprovisioning is Envoy's factor in percent: a priority receives all the traffic as long as
	// its share of healthy endpoints times the factor is at least 100. 0 selects Envoy's default of
	// 140.
	Overprovisioning uint32

	key string
}

// NewLocalities returns a copy of l with its key set.
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

// Failover is a group of zones with one priority.
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

// Compare orders localities by priority, zone, sub-zone, and weight.
func (l Locality) Compare(o Locality) int {
	return cmp.Or(cmp.Compare(l.Priority, o.Priority), cmp.Compare(l.Zone, o.Zone), cmp.Compare(l.SubZone, o.SubZone),
		cmp.Compare(l.Weight, o.Weight))
}

// Assign returns the locality of an endpoint, or false if the endpoint gets no traffic. An endpoint
// without a zone, such as one outside the mesh, counts as local. The labels of its dataplane stand
// for missing tags.
func (l *Localities) Assign(zone string, tags, labels map[string]string) (Locality, bool) {
	if zone == "" || zone == l.Zone {
		for _, a := range l.Affinity {
			value, ok := tags[a.Key]
			if !ok {
				value = labels[a.Key]
			}
			if value == a.Value {
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

// Key identifies the content: localities with equal keys assign endpoints equally. It is "" for
// nil.
func (l *Localities) Key() string {
	if l == nil {
		return ""
	}
	return l.key
}
