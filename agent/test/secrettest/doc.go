// Package secrettest finds secrets in what tests get to see: answers, logs and files.
package secrettest
