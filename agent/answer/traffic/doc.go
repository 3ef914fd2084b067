// Package traffic answers questions from access logs: which services the traffic of a proxy has
// used, which connections it has refused, and which lines of a log match a filter.
//
// Lines come from a file with its rotated backups, or from a stream; both provide
// [rotation.Line] values. The access loggers in a proxy's config give the formats of the lines.
//
//   - [NewUsage] finds the loggers of a proxy. [Usage] counts lines by service, and [Usage.Propose]
//     computes what the Dataplane should list as reachable.
//   - [RefusalLogs] finds the loggers that write refused connections. [Refusals] counts
//     destinations. [ProposePassthrough] evaluates each against the current config, and merges the
//     suggestions for those still refused into one policy.
//   - [Show] writes lines of access logs and events of the audit log that match a [Filter]. [Stats]
//     counts lines of access logs by the value of a field.
//
// Clients choose parts of a line. A value counts only where no client can shift it (see
// [logline.Reader]): only services of the mesh and valid host names are proposed, and lines that
// cannot be attributed are counted by reason. Memory is bounded: long lines are left out or read in
// parts, and the number of remembered values has limits. A value of these types is for one
// goroutine. Show and Stats read several parts of a file at the same time.
package traffic
