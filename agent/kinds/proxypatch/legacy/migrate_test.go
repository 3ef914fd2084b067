package legacy_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/kinds/proxypatch"
	"github.com/nearside-mesh/nearside/agent/kinds/proxypatch/legacy"
	"github.com/nearside-mesh/nearside/agent/kindtest"
)

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", proxypatch.Plugin(legacy.Kind()))
}
