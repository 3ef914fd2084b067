// Package reconcile keeps the proxies of the node up to date with the store.
//
// One level-triggered loop derives every mesh and every connected proxy from one snapshot of the
// store, checks new configs, and publishes changed ones. A fault in one proxy or policy never
// affects another.
package reconcile
