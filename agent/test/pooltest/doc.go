// Package pooltest tests pools of agents that run as separate processes: they are killed,
// restarted, and started with earlier copies of their state. The environment variable POOL_BINARY
// selects another build of nearside.
package pooltest
