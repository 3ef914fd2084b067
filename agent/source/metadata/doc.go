// Package metadata brings the Dataplanes that Envoys carry in their node metadata into the store,
// for as long as the Envoys are connected.
package metadata
