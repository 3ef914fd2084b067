//go:build !linux

package accesslog

import (
	"net"
	"syscall"
)

// unread returns how many bytes of a connection the kernel has; here that is not known.
func unread(int) int { return 0 }

// acceptOne takes a connection that waits in the backlog; here those are lost with the listener.
func acceptOne(syscall.RawConn) net.Conn { return nil }
