// Package ads is the transport of xDS: an aggregated discovery service for Envoys and gRPC clients,
// in the delta and the state-of-the-world form, over connections that the caller accepts. Package
// rollout decides what is sent. It promises that no client, silent, slow, forged or hostile, delays
// Publish or another client, and that memory per client is bounded.
package ads
