package logs_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if arg := os.Getenv(readerVariable); arg != "" {
		os.Exit(readUntilKilled(arg))
	}
	goleak.VerifyTestMain(m)
}
