// Package changetest changes random policies while traffic flows through real Envoys. No request
// may fail, and no long stream may end before the drain time of its Envoy. It also moves Envoys
// from a control plane to an agent, and back.
package changetest
