package trafficpermission_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/trafficpermission"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/trafficpermission/legacy"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", trafficpermission.Plugin(legacykind.Kind()))
}
