package accesslog

import (
	"bytes"
	"context"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is a Destination that keeps what it gets.
type collector struct {
	bytes.Buffer
	batches int
	// part, where it is set, says how much of a batch is taken, and the error.
	part func(batch []byte) (int, error)
}

func (c *collector) Write(_ context.Context, batch []byte) (int, error) {
	c.batches++
	n, err := len(batch), error(nil)
	if c.part != nil {
		n, err = c.part(batch)
	}
	c.Buffer.Write(batch[:n])
	return n, err
}
