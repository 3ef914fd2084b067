// Package generate makes the config of a proxy: a view of the mesh, its policies and a proxy in, a sealed config out.
//
// It is pure: the same input gives the same bytes on every node. What a [Memo] or an earlier result saves is work, never a
// difference.
package generate
