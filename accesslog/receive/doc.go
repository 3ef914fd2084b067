// Package receive receives access-log lines over TCP and Unix sockets, with or without TLS, and
// writes them to one [accesslog.Destination]. If the destination blocks, the senders block too.
package receive
