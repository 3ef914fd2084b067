// Package syntax parses texts within a config as Envoy does: address ranges, regular expressions,
// PEM certificates, CEL expressions, Lua scripts, and URI templates. It reports no false positives,
// because it checks only those rules of a language that it implements exactly.
package syntax
