// Package receive takes lines of access logs from TCP and unix sockets, with or without TLS, and
// hands them to one [accesslog.Destination]. Where the destination waits, the senders do.
package receive
