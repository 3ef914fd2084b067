// Package envoybin validates configs with a real Envoy, if one is available.
package envoybin
