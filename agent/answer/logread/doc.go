// Package logread shows lines of access logs and events of the audit log, out of files and of those
// that were rotated from them.
//
// The formats of lines may be given, as [Formats]; without them the default format of requests is
// known, and usual fields of JSON.
//
// What stands in a log was sent by clients. A [Filter] takes the time and the status code of a line
// only where nobody can have moved them, and leaves out and counts the lines of which it cannot
// tell. Memory is bounded by the longest part of a line that rotation.Reader returns. [Read] is for
// one goroutine and starts none.
package logread
