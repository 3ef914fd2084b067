// Package syntax parses texts within a config as Envoy does: address ranges, regular expressions,
// PEM certificates, CEL expressions, Lua scripts, and URI templates. It has no false positives: it
// parses only as much of a language as it can judge with certainty.
package syntax
