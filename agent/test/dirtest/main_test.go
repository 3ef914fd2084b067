package dirtest

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain allows the goroutine of lumberjack, which never ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}
