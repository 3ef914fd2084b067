// Package logline reads back what Envoy's file loggers have written: the values of operators, out
// of lines of text and of JSON.
//
// A [Reader] reads the lines of one format. [Families] joins formats that differ in words alone, as
// the same format does in the listeners of a proxy once the names of services stand in it, so that
// a line is read once and not for every listener; the words say whose line it is. [Loggers] finds
// the loggers of a listener.
//
// What stands in a log was sent by clients in part. Values are taken where nobody can have moved
// them (see [substitution.Lines]), and a line that a format cannot have written is none of it.
// Everything here is a function of what it is given, and safe for concurrent use.
package logline
