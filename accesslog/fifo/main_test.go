package fifo

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if arg := os.Getenv("ACCESSLOG_TEST_READER"); arg != "" {
		os.Exit(readUntilKilled(arg))
	}
	if arg := os.Getenv("ACCESSLOG_BENCH_WRITER"); arg != "" {
		os.Exit(writeAsEnvoy(arg))
	}
	goleak.VerifyTestMain(m)
}
