package timeout_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/kinds/timeout"
	legacykind "github.com/nearside-mesh/nearside/agent/kinds/timeout/legacy"
	"github.com/nearside-mesh/nearside/agent/kindtest"
)

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", timeout.Plugin(legacykind.Kind()))
}
