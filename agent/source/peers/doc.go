// Package peers exchanges resources with the pool of agents: changes that operators make on one
// node reach all nodes, and each node has the dataplanes of the others.
//
// There are three classes of resources. Resources that operators write over the API (meshes,
// policies, services) are records of the pool. They can be changed on any node, the newest version
// wins everywhere, and the store has those of other nodes with the source [store.SourceGossip].
// Resources that belong to a node (Dataplanes, ExternalServices, zone proxies) are items that the
// node publishes, and other nodes store them with the source [store.SourcePeer]. Resources in the
// files of a published directory belong to the pool: one of the nodes with the directory publishes
// them, and all nodes store them with the source [store.SourcePublished]. Other resources in files
// stay on their node: config management or a ConfigMap puts the same files on every node.
//
// Package gossip does not interpret resources and does not know the store. This package decodes
// records and skips unknown kinds.
package peers
