// Package referencetest tries the evidence of .ci/fidelity-known on a real Envoy: where nearside
// differs from its reference on purpose, both forms run, and real connections show the outcome of
// each.
package referencetest
