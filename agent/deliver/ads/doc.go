// Package ads is the xDS transport: an aggregated discovery service for Envoys and gRPC clients, in
// the delta and the state-of-the-world protocol, over connections that the caller accepts. Package
// rollout selects the resources to send. No client, however slow or hostile, delays Publish or
// another client, and the memory per client is bounded.
package ads
