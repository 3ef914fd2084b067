package auditlog

import (
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/nearside-mesh/nearside/agent/serve/audit"
	"github.com/nearside-mesh/nearside/rotation"
)

// VerifyOptions configures [Verify]. Only Path is required.
type VerifyOptions struct {
	Path   string        // of the active file
	Record *audit.Record // of the agent, read before; nil: the end of the log is not compared
	// After returns the record after the files were read. It is nil if the agent does not run.
	After func() *audit.Record
	Now   time.Time // rotated files with later times are reported; zero: none
}

// Verify reads a log and its rotated files, and reports where the chain breaks. The agent may write
// and rotate the log meanwhile. The error is fs.ErrNotExist if there is no file, or one of reading.
func Verify(o VerifyOptions) (*audit.Report, error) {
	v := audit.NewVerifier(o.Record, audit.Link{})
	future := func(s rotation.Stored, events int) {
		// A file that the agent has rotated while the clock was wrong has events of the chain.
		if !o.Now.IsZero() && s.Rotated.After(o.Now.Add(clockSlack)) && v.Events() == events {
			v.Fault(s.Path, "the time in the name of the rotated file is in the future")
		}
	}
	err := rotation.Visit(o.Path, -1, func(s rotation.Stored, content io.Reader) error {
		v.File()
		defer future(s, v.Events())
		switch {
		case s.Err != nil && errors.Is(s.Err, fs.ErrPermission):
			return s.Err
		case s.Err != nil:
			v.Fault(s.Path, "the file cannot be read: "+s.Err.Error())
			return nil
		case !s.Rotated.IsZero() && s.Size == 0:
			v.Fault(s.Path, "the rotated file is empty, but the agent rotates no empty files")
		}
		err := eachLine(content, func(n int, line []byte, open bool) error {
			if open && s.Rotated.IsZero() && o.After != nil {
				return nil // the agent is writing it
			}
			v.Line(s.Path, n, line)
			return nil
		})
		if err != nil && !s.Rotated.IsZero() {
			v.Fault(s.Path, "the file cannot be read to its end: "+err.Error())
			err = nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var now *audit.Record
	if o.After != nil {
		now = o.After()
	}
	return v.Report(o.Path, now), nil
}

// clockSlack is how far the clock may have been set back since a rotation.
const clockSlack = time.Minute
