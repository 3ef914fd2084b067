package agent

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// portTaken returns the error for an address that cannot be opened. If another process uses it, the
// error says how to find that process.
func portTaken(address string, err error) error {
	_, port, split := net.SplitHostPort(address)
	if split != nil || !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	return &takenError{fmt.Sprintf("another process listens on %s; find it with \"ss -lntup 'sport = :%s'\" and stop it, "+
		"or give another address", address, port), err}
}

// takenError explains an error of a system call.
type takenError struct {
	text  string
	cause error
}

func (e *takenError) Error() string { return e.text }
func (e *takenError) Unwrap() error { return e.cause }
