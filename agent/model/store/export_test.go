package store

import (
	"io"
)

// SetFault makes commits fail with the error of fault; nil removes the fault.
func (s *Store) SetFault(fault func() error) {
	s.commits.Lock()
	defer s.commits.Unlock()
	s.state.beforeWrite = fault
}

// SetLateFault makes commits fail with err after they are on disk; nil removes the fault.
func (s *Store) SetLateFault(err error) {
	s.commits.Lock()
	defer s.commits.Unlock()
	s.state.afterWrite = func() error { return err }
}

// Guard runs fn like code that uses bbolt.
func Guard(fn func()) error { return guard(func() error { fn(); return nil }) }

// CheckPages runs the structural check of a state file.
func CheckPages(r io.ReaderAt, size int64) error { return checkPages(r, size) }

// Unwrap splits a value and joins it again.
func Unwrap(key, value []byte) ([]byte, error) {
	h, body, err := unwrap(key, value)
	if err != nil {
		return nil, err
	}
	return wrap(key, h, body)
}

// Wrap returns a value of revision 7.
func Wrap(key, body []byte) ([]byte, error) {
	return wrap(key, header{Revision: 7, Source: Source{Kind: SourceAPI}, Deleted: len(body) == 0}, body)
}

// MetaValue returns a value of the meta bucket.
func MetaValue(key, content string) []byte {
	return sealed(key, []byte(content))
}
