package access_test

import (
	"slices"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

// TestUsers checks that only named users and small ranges are returned, because a wide range does
// not show who runs Envoys.
func TestUsers(t *testing.T) {
	p, err := access.NewProxies(access.ProxyOptions{Rules: []access.ProxyRule{
		{Matcher: access.Matcher{UID: "1002-1004"}}, {Matcher: access.Matcher{User: "0"}},
		{Matcher: access.Matcher{UID: "0-4294967295"}}, {Matcher: access.Matcher{UID: "1003"}},
		{Matcher: access.Matcher{Group: "0"}}, {Matcher: access.Matcher{UID: "2000-2252"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Users(); !slices.Equal(got, []uint32{0, 1002, 1003, 1004}) {
		t.Errorf("users %v", got)
	}
}
