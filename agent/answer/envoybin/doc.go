// Package envoybin asks a real Envoy about configs, where there is one.
package envoybin
