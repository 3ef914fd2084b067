// Package faulttest provokes faults on running agents and real Envoys. Each row of its table is a
// fault, the command that a user runs first, and the sentence of its output that names the cause.
package faulttest
