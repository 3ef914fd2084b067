// Package directory loads resources from watched directories of files into the store.
//
// A file with a fault keeps its last good content, and does not affect other files. [Source.Run]
// ends with its context.
package directory
