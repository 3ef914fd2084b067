package accesslog_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/kinds/accesslog"
	legacykind "github.com/nearside-mesh/nearside/agent/kinds/accesslog/legacy"
	"github.com/nearside-mesh/nearside/agent/kindtest"
)

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", accesslog.Plugin(legacykind.Kind()))
}
