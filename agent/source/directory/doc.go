// Package directory brings resources from watched directories of files into the store.
//
// A file with a fault keeps its last good content in force, and never hides another file.
// [Source.Run] ends with its context.
package directory
