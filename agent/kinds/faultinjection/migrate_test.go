package faultinjection_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/kinds/faultinjection"
	legacykind "github.com/nearside-mesh/nearside/agent/kinds/faultinjection/legacy"
	"github.com/nearside-mesh/nearside/agent/kindtest"
)

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", faultinjection.Plugin(legacykind.Kind()))
}
