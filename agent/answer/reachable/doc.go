// Package reachable finds in access logs which services the traffic of a proxy has used, and
// proposes what its Dataplane is to list as reachable.
//
// [NewTraffic] reads from the config of a proxy which listeners log where and in which words; a
// [Traffic] then reads files and counts what its lines are about; [Propose] joins that with what
// the mesh says of its services.
//
// What stands in a log was sent by clients in part. A line counts for a service where values that
// nobody can have moved (see [logline.Reader]) leave no other choice, and only services of the mesh
// are proposed; what cannot be told is counted by its reason. Lines and what is remembered of them
// are bounded. [Traffic] is for one goroutine and starts none.
package reachable
