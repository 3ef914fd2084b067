// Package ads is an aggregated discovery service for Envoys and gRPC clients, in the delta and the
// state-of-the-world form, over connections that the caller accepts. It promises:
//
//   - a client that already has a config is sent nothing, also after a restart of the agent:
//     versions are content hashes;
//   - what is referred to arrives before what refers to it, and is removed after it;
//   - a stream is sent nothing that was made from the state before it was opened;
//   - a rejected response is not repeated until the type changes, is then sent whole again, and
//     what a proxy rejected is not forced on its successor: a new stream starts from the bytes that
//     the proxy last accepted;
//   - no client, silent, slow, forged or hostile, delays Publish or another client, and memory per
//     client is bounded.
package ads
