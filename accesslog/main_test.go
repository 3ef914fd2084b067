package accesslog

import (
	"bytes"
	"context"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is a Destination that records lines.
type collector struct {
	bytes.Buffer
	batches int
	// accept, if set, returns how much of a batch is accepted, and the error.
	accept func(batch []byte) (int, error)
}

func (c *collector) Write(_ context.Context, batch []byte) (int, error) {
	c.batches++
	n, err := len(batch), error(nil)
	if c.accept != nil {
		n, err = c.accept(batch)
	}
	c.Buffer.Write(batch[:n])
	return n, err
}
