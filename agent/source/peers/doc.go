// Package peers is the pool of agents as a source of resources: what operators write on one node is
// on all, and each node has the dataplanes of the others.
//
// There are two sorts of resources. Those that operators write over the API (meshes, policies,
// services) are records of the pool: anybody may change them on any node, the newest version wins
// everywhere, and the store has those of others with the source [store.SourceGossip]. Those that
// belong to a node (Dataplanes, ExternalServices, zone proxies) travel in what that node says it
// owns, and others have them with the source [store.SourcePeer]. What files of a node say beside
// that stays on the node: config management, or a ConfigMap, puts the same files on every node.
//
// The pool knows nothing of resources, and package gossip nothing of the store: this package
// decodes what comes, and leaves alone what it does not know.
package peers
