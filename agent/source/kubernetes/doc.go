// Package kubernetes reads what the watcher of Kubernetes says about itself. The watcher writes
// resource directories and, beside them, its status. The file is untrusted input. The package
// starts no goroutines.
package kubernetes
