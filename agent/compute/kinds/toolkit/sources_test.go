package toolkit_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

func TestOfSources(t *testing.T) {
	one := toolkit.OfSources([]resource.LegacySelector{{Match: map[string]string{"kuma.io/service": "*"}}})
	if got := one[0].GetStringMatch().GetSafeRegex().GetRegex(); got != ".*&kuma.io/service=.*" {
		t.Error(got)
	}
	two := toolkit.OfSources([]resource.LegacySelector{{Match: map[string]string{"kuma.io/service": "web", "v": "1.0"}},
		{Match: map[string]string{"kuma.io/service": "api"}}})
	want := `(.*&kuma.io/service=[^&]*web[,&].*&v=[^&]*1\.0[,&].*|.*&kuma.io/service=[^&]*api[,&].*)`
	if got := two[0].GetStringMatch().GetSafeRegex().GetRegex(); got != want || strings.Count(got, "|") != 1 {
		t.Errorf("got %s", got)
	}
}
