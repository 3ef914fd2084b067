// Package intercept redirects DNS to the agent's resolver, and optionally TCP to an Envoy, with
// nftables.
//
// [Install] loads one table, inet nearside, in one transaction, and writes a [Record] for the
// agent. [Uninstall] removes both. Nothing else in the kernel changes, so uninstalling restores
// the previous state. The redirection applies to all processes in a network namespace, or to some
// users or cgroups in it.
//
// The redirection of DNS is a dead man's switch: its rules match the elements of a set that
// expire after [LiveTime], and a [Renewer] in the agent renews them while its resolver responds.
// Without an agent, queries go to the real servers again. The agent's own queries carry [Mark]
// and are never redirected. The redirection of TCP has no such switch, because traffic must not
// bypass an Envoy that is down.
//
// The package supports only Linux. A [Renewer] starts goroutines, and Run returns when they have
// ended. Everything else is done when the call returns.
package intercept
