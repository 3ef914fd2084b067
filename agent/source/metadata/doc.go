// Package metadata stores the Dataplanes in the node metadata of connected Envoys.
package metadata
