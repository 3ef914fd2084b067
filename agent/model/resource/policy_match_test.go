package resource_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestClientMatch checks which clients a match selects, and which matches include others.
func TestClientMatch(t *testing.T) {
	id := func(typ, value string) *resource.SpiffeIDMatch {
		return &resource.SpiffeIDMatch{Type: typ, Value: value}
	}
	sni := func(value string) *resource.SNIMatch {
		return &resource.SNIMatch{Type: resource.MatchExact, Value: value}
	}
	exact, prefix := id(resource.MatchExact, "spiffe://m/web"), id(resource.MatchPrefix, "spiffe://m/w")
	web := []string{"spiffe://m/other", "spiffe://m/web"}
	for _, c := range []struct {
		match  resource.ClientMatch
		ids    []string
		server string
		want   bool
	}{
		{resource.ClientMatch{}, web, "a", false},
		{resource.ClientMatch{SpiffeID: exact}, web, "", true},
		{resource.ClientMatch{SpiffeID: exact}, []string{"spiffe://m/web-2"}, "", false},
		{resource.ClientMatch{SpiffeID: prefix}, []string{"spiffe://m/web-2"}, "", true},
		{resource.ClientMatch{SNI: sni("a")}, nil, "a", true},
		{resource.ClientMatch{SNI: sni("a")}, web, "b", false},
		{resource.ClientMatch{SpiffeID: exact, SNI: sni("a")}, web, "a", true},
		{resource.ClientMatch{SpiffeID: exact, SNI: sni("a")}, web, "b", false},
		{resource.ClientMatch{SpiffeID: exact, SNI: sni("a")}, nil, "a", false},
	} {
		if got := c.match.Holds(c.ids, c.server); got != c.want {
			t.Errorf("%q holds for %q with server name %q: %t, want %t", c.match.String(), c.ids, c.server, got, c.want)
		}
	}
	for _, c := range []struct {
		wide, narrow resource.ClientMatch
		want         bool
	}{
		{resource.ClientMatch{SpiffeID: prefix}, resource.ClientMatch{SpiffeID: exact}, true},
		{resource.ClientMatch{SpiffeID: exact}, resource.ClientMatch{SpiffeID: prefix}, false},
		{resource.ClientMatch{SpiffeID: prefix}, resource.ClientMatch{SpiffeID: exact, SNI: sni("a")}, true},
		{resource.ClientMatch{SNI: sni("a")}, resource.ClientMatch{SpiffeID: exact, SNI: sni("a")}, true},
		{resource.ClientMatch{SNI: sni("a")}, resource.ClientMatch{SpiffeID: exact, SNI: sni("b")}, false},
		{resource.ClientMatch{SNI: sni("a")}, resource.ClientMatch{SpiffeID: exact}, false},
		{resource.ClientMatch{SpiffeID: exact, SNI: sni("a")}, resource.ClientMatch{SpiffeID: exact}, false},
	} {
		if got := c.wide.Covers(&c.narrow); got != c.want {
			t.Errorf("%q covers %q: %t, want %t", c.wide.String(), c.narrow.String(), got, c.want)
		}
	}
}
