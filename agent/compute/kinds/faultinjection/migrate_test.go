package faultinjection_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/faultinjection"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/faultinjection/legacy"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", faultinjection.Plugin(legacykind.Kind()))
}
