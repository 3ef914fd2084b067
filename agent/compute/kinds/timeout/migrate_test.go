package timeout_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/timeout"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/timeout/legacy"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", timeout.Plugin(legacykind.Kind()))
}
