package trafficpermission_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/trafficpermission"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/trafficpermission/legacy"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestCases(t *testing.T) {
	kindtest.Run(t, "testdata", trafficpermission.Plugin(legacykind.Kind()))
}
