// Package logline parses the lines of Envoy's file loggers: it extracts the values of operators
// from text and JSON lines.
//
// A [Reader] reads the lines of one format. [Families] groups formats that differ only in words, as
// one format does in the listeners of a proxy after names of services are inserted. A line is then
// read once instead of once per listener, and its words identify the listener. [Loggers] finds the
// loggers of a listener.
//
// Clients control parts of a log. A value is accepted only if no client could have shifted it into
// another operator's position (see [substitution.Lines]). A line that the format cannot produce is
// rejected. All functions are pure and safe for concurrent use.
package logline
