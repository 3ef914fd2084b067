// Package reconcile keeps the proxies of the node in line with the store.
//
// One loop, triggered by level, derives every mesh and every connected proxy from one snapshot of
// the store, checks what is new, and publishes what changed. A fault in one proxy or policy never
// stops another.
package reconcile
