package text

import (
	"io"
)

// CheckedWriter remembers that the data did not all go out, so that no command has to ask at every
// line.
type CheckedWriter struct {
	W   io.Writer
	Err error // the first
}

func (c *CheckedWriter) Write(p []byte) (int, error) {
	n, err := c.W.Write(p)
	if err != nil && c.Err == nil {
		c.Err = err
	}
	return n, err
}
