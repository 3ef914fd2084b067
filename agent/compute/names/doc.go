// Package names turns the views of the meshes of a node into the names that its resolver answers.
//
// It is pure: the same views give the same names, in the same order. A name that services of two
// meshes claim has one owner: a mesh with a proxy on this node takes precedence, then the origin
// decides as within a mesh (see [mesh.Origin]), then the name of the mesh.
package names
