package agent

import (
	"errors"
	"net"
	"testing"
)

// TestPortTaken checks that the error contains the command that finds the owner of an address.
func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().String()
	_, err = net.Listen("tcp", at)
	_, port, _ := net.SplitHostPort(at)
	if got := portTaken(at, err).Error(); got != "another process listens on "+at+"; find it with \"ss -lntup 'sport = :"+
		port+"'\" and stop it, or give another address" {
		t.Error(got)
	}
	other := errors.New("no such interface")
	if got := portTaken(at, other); got != other {
		t.Error(got)
	}
}
