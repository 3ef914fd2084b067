// Package names turns the views of a node's meshes into the names that its resolver answers.
//
// It is pure: the same views give the same names in the same order. If services of two meshes claim
// a name, one of them owns it: a mesh with a proxy on this node takes precedence, then the origin
// decides as within a mesh (see [mesh.Origin]), then the name of the mesh.
package names
