package circuitbreaker_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/kinds/circuitbreaker"
	legacykind "github.com/nearside-mesh/nearside/agent/kinds/circuitbreaker/legacy"
	"github.com/nearside-mesh/nearside/agent/kindtest"
)

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", circuitbreaker.Plugin(legacykind.Kind()))
}
