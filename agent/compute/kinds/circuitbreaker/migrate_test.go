package circuitbreaker_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/circuitbreaker"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/circuitbreaker/legacy"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", circuitbreaker.Plugin(legacykind.Kind()))
}
