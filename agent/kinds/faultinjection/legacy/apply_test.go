package legacy

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/resource"
)

func TestOfSources(t *testing.T) {
	one := ofSources([]resource.LegacySelector{{Match: map[string]string{"kuma.io/service": "*"}}})
	//lint:ignore SA1019 the field that is written
	if got := one[0].GetSafeRegexMatch().GetRegex(); got != ".*&kuma.io/service=.*" {
		t.Error(got)
	}
	two := ofSources([]resource.LegacySelector{{Match: map[string]string{"kuma.io/service": "web", "v": "1.0"}}, {Match: map[string]string{"kuma.io/service": "api"}}})
	want := `(.*&kuma.io/service=[^&]*web[,&].*&v=[^&]*1\.0[,&].*|.*&kuma.io/service=[^&]*api[,&].*)`
	//lint:ignore SA1019 the field that is written
	if got := two[0].GetSafeRegexMatch().GetRegex(); got != want || strings.Count(got, "|") != 1 {
		t.Errorf("got %s", got)
	}
}
