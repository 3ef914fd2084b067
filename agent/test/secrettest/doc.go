// Package secrettest finds secrets in the output that tests can see: responses, logs, and files.
package secrettest
