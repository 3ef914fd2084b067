// Package refusals finds in access logs which connections a proxy has refused, and proposes what
// would let them out.
//
// [LogsOf] lists the loggers of a config that write such connections, with the formats of their
// lines; a [Collector] reads lines and counts destinations; [Propose] asks what becomes of each,
// and joins what is suggested for those that are still refused into one policy.
//
// What stands in a log was sent by clients. Lines and what is remembered of them are bounded,
// values are taken where nobody can move them (see [logline.Reader]), and a name is proposed only
// if it is a host name. Everything here is a function of what it is given; it is for one goroutine.
package refusals
