package accesslog_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/accesslog"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/accesslog/legacy"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", accesslog.Plugin(legacykind.Kind()))
}
