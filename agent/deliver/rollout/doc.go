// Package rollout decides what each proxy is sent, when, and in which order. It holds what a proxy
// has, what it rejected, what drains, and how far it is. It knows no connection: package ads is the
// transport. It promises:
//
//   - a client that already has a config is sent nothing, also after a restart of the agent:
//     versions are content hashes;
//   - what is referred to arrives before what refers to it, and is removed after it;
//   - a stream is sent nothing that was made from the state before it was opened;
//   - a rejected response is not repeated until the type changes, is then sent whole again, and
//     what a proxy rejected is not forced on its successor: a new stream starts from the bytes that
//     the proxy last accepted.
package rollout
