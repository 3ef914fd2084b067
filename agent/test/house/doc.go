// Package house tests the rules of the repository: allowed imports, where goroutines may start,
// which packages must be pure, file sizes, the reason for each dependency, and that the documents
// match the sources. It exports nothing.
//
// The rules walk and parse the sources themselves instead of calling the go command, so that a
// cached test result never hides a violation. Each rule is a function from a source tree
// to its violations, and is tested against small invalid trees in testdata.
package house
