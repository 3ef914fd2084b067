package accesslog

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if arg := os.Getenv("ACCESSLOG_TEST_READER"); arg != "" {
		os.Exit(readUntilKilled(arg))
	}
	goleak.VerifyTestMain(m)
}
