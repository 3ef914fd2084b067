// Package rollout decides what each proxy receives, when, and in which order. It stores what a
// proxy has and has rejected, what drains, and the sync status. Package ads is the transport.
// Guarantees:
//
//   - A client that already has the config receives nothing, also after a restart of the agent,
//     because versions are content hashes.
//   - A resource arrives before the resources that refer to it, and is removed after them.
//   - A stream receives nothing that was generated from a state before it was opened.
//   - A rejected response is not repeated until its type changes; then it is sent completely. A
//     new stream starts with the bytes that the proxy accepted last.
package rollout
