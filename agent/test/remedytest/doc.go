// Package remedytest tests the remedies in errors and warnings: following one must not widen who
// may connect, who may write, or what may leave.
package remedytest
