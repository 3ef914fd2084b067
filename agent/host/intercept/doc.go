// Package intercept redirects DNS to the agent's resolver, and on request TCP to an Envoy, with
// nftables.
//
// [Install] loads one table, inet nearside, in one transaction, and leaves a [Record] for the
// agent; [Uninstall] takes both away. Nothing else in the kernel is changed, so that what was there
// before is there after. What is redirected are queries of processes in one network namespace, or
// of some users or cgroups in it.
//
// The redirection of DNS is a dead man's switch: its rules match the elements of a set that expire
// after [LiveTime], and a [Keeper] in the agent puts them there anew while its resolver answers.
// When the agent is gone, names are asked of the real servers again. What the agent itself asks of
// them carries [Mark] and is never redirected. The redirection of TCP has no such switch: traffic
// does not pass by an Envoy that is away.
//
// It works on Linux alone. A [Keeper] starts goroutines, and Run returns when they have ended; all
// else is done when the call returns.
package intercept
