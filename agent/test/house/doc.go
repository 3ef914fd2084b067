// Package house holds the rules of the house as tests: which package may import which, where
// goroutines may start, what stays pure, how long a file may grow, which modules are in use and
// why, and that the documents agree with the tree. It exports nothing and is imported by nothing.
//
// The rules walk and parse the sources themselves instead of asking the go command, so that a
// cached test result never hides a broken rule. Each rule is a function from a tree to its
// breaches, and each is shown to fail by the small broken trees in testdata.
package house
