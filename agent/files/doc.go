// Package files opens files that others may have made.
package files
