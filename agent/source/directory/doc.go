// Package directory brings resources from a watched directory of files into the store.
//
// A file with a fault keeps its last good content in force, and never hides another file. [Source.Run] ends with its
// context.
package directory
