// Package mesh derives an immutable view of one mesh from a set of resources: its services, their endpoints and
// virtual addresses, and what each proxy may reach. It is pure: the same set gives the same view.
package mesh
