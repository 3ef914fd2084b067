// Package pods serves sockets in the directories of Kubernetes pods. The CSI driver of nearside
// makes a directory UID for each pod, mounts it into the pod, and then registers the pod in a file
// UID.json beside it. Only the pod and root can reach the sockets in its directory, so a connection
// over them proves which pod the peer belongs to.
//
// Only files of root and of the user of the agent count, and only if no other user can reach the
// directory of all pods. Names are opened relative to open directories, and links are not followed.
// A registration that is refused does not affect the others. What was served continues while the
// directory cannot be read.
package pods
