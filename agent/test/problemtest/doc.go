// Package problemtest provokes faults on real agents. It compares all views of the list of problems
// for each fault, and checks that each alert fires.
package problemtest
