// Package syntax reads the texts within a config as Envoy does: ranges of addresses, regular
// expressions, certificates in PEM, expressions in CEL, Lua scripts, and URI templates. What it
// calls a fault is one for sure; it reads no more of a language than that needs.
package syntax
