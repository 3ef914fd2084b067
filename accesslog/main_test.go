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
	if dir := os.Getenv("ACCESSLOG_TEST_HOLDER"); dir != "" {
		os.Exit(holdUntilIdle(dir))
	}
	goleak.VerifyTestMain(m)
}
