package legacy_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/proxypatch"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/proxypatch/legacy"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", proxypatch.Plugin(legacy.Kind()))
}
