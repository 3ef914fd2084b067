package store_test

import (
	"os"
	"testing"
)

// childPath is the environment variable that makes the test binary the writer of TestKill.
const childPath = "NEARSIDE_STORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		os.Exit(child(path))
	}
	os.Exit(m.Run())
}
