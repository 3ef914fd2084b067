// Package files opens files that others may have made, and keeps files that others must not read.
package files
