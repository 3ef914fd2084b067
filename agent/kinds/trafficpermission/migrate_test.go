package trafficpermission_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/kinds/trafficpermission"
	legacykind "github.com/nearside-mesh/nearside/agent/kinds/trafficpermission/legacy"
	"github.com/nearside-mesh/nearside/agent/kindtest"
)

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", trafficpermission.Plugin(legacykind.Kind()))
}
