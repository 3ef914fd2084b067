// Package files safely opens files that other users may have created, and manages files that other
// users must not read.
package files
