package policy_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
)

func TestAssign(t *testing.T) {
	l := policy.NewLocalities(policy.Localities{
		Zone:        "east",
		Affinity:    []policy.Affinity{{Key: "node", Value: "n1", Weight: 90}, {Key: "rack", Value: "r1", Weight: 9}},
		LocalWeight: 1,
		Failover: []policy.Failover{{Priority: 1, Zones: []string{"west"}},
			{Priority: 3, Zones: []string{"north"}, Except: true}},
	})
	for _, c := range []struct {
		name, zone string
		tags       map[string]string
		labels     map[string]string
		want       policy.Locality
		none       bool
	}{
		{name: "the first tag in common decides", zone: "east", tags: map[string]string{"node": "n1", "rack": "r1"},
			want: policy.Locality{Zone: "east", SubZone: "node=n1", Weight: 90}},
		{name: "a later tag", zone: "east", tags: map[string]string{"node": "n2", "rack": "r1"},
			want: policy.Locality{Zone: "east", SubZone: "rack=r1", Weight: 9}},
		{name: "a label stands for a missing tag", zone: "east", tags: map[string]string{"rack": "r1"},
			labels: map[string]string{"node": "n1"}, want: policy.Locality{Zone: "east", SubZone: "node=n1", Weight: 90}},
		{name: "a tag takes precedence over a label", zone: "east", tags: map[string]string{"node": "n2"},
			labels: map[string]string{"node": "n1"}, want: policy.Locality{Zone: "east", Weight: 1}},
		{name: "no tag in common", zone: "east", want: policy.Locality{Zone: "east", Weight: 1}},
		{name: "no zone counts as the proxy's", tags: map[string]string{"node": "n1"},
			want: policy.Locality{Zone: "east", SubZone: "node=n1", Weight: 90}},
		{name: "a zone by name, tags do not matter", zone: "west", tags: map[string]string{"node": "n1"},
			want: policy.Locality{Zone: "west", Priority: 1}},
		{name: "a zone that is not excepted", zone: "south", want: policy.Locality{Zone: "south", Priority: 3}},
		{name: "an excepted zone", zone: "north", none: true},
	} {
		if got, ok := l.Assign(c.zone, c.tags, c.labels); ok == c.none || got != c.want {
			t.Errorf("%s: got %+v, %v", c.name, got, ok)
		}
	}
}

func TestLocalitiesKey(t *testing.T) {
	spec := policy.Localities{Zone: "a", Failover: []policy.Failover{{Priority: 1, Zones: []string{"b", "c"}}}}
	a, b := policy.NewLocalities(spec), policy.NewLocalities(*policy.NewLocalities(spec))
	if a.Key() == "" || a.Key() != b.Key() {
		t.Errorf("equal localities have different keys %q and %q", a.Key(), b.Key())
	}
	spec.Failover = []policy.Failover{{Priority: 1, Zones: []string{`b", "c`}}}
	if c := policy.NewLocalities(spec); a.Key() == c.Key() {
		t.Errorf("different localities have the same key: %s", c.Key())
	}
	if k := (*policy.Localities)(nil).Key(); k != "" {
		t.Errorf("nil localities have the key %q", k)
	}
}
