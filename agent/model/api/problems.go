package api

import "time"

// Problem is an entry of the list of problems: a failed or degraded check, or an operation on a
// resource that failed in whole or in part.
type Problem struct {
	Resource string `json:"resource"` // Kind/mesh/name; empty for the agent and its files
	Severity string `json:"severity"` // SeverityError or SeverityWarning
	// Check is the class of the problem, one of the names in ProblemClasses.
	Check   string `json:"check"`
	Reason  string `json:"reason"`
	Command string `json:"command"` // the first command to run: it names the cause or the cure
	// Unready means that the node is not ready because of the problem.
	Unready bool `json:"unready,omitempty"`
}

// Severities of problems.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// ProblemCount is the number of problems of one class and severity.
type ProblemCount struct {
	Check    string `json:"check"`
	Severity string `json:"severity"`
	Count    int    `json:"count"`
	Command  string `json:"command"` // of the first of them
}

// Classes of problems that are not checks of [Status].Checks.
const (
	ClassResource        = "resource"         // a resource is not or only in part in force, or has a warning
	ClassRejected        = "rejected"         // an Envoy rejected a resource
	ClassWithheld        = "withheld"         // the check withholds a resource from an Envoy
	ClassUnknownNode     = "unknown-node"     // an Envoy asks for a proxy that does not exist
	ClassPending         = "pending"          // an Envoy does not acknowledge its config
	ClassStreamRefused   = "stream-refused"   // the agent refused an xDS stream
	ClassNoEffect        = "policy-no-effect" // a policy has no effect on any proxy that it selects
	ClassLostLines       = "lost-lines"       // an Envoy has lost access-log lines
	ClassLogCollector    = "log-collector"    // a collector accepts no lines of access logs, without an error
	ClassLogDropped      = "log-dropped"      // lines of access logs were dropped within the last hour
	ClassLogGap          = "log-gap"          // a listener has no access log, because its destination is not ready
	ClassLogSenders      = "log-senders"      // a receiver of access logs has refused senders within the last hour
	ClassLogDirectory    = "log-directory"    // a directory of access logs was replaced within the last hour
	ClassLogSpool        = "log-spool"        // the oldest line of a spool has waited for more than 30 s
	ClassFileFault       = "file-fault"       // a resource file has a fault
	ClassFileConflict    = "file-conflict"    // a resource file has a resource that another source manages
	ClassFileMissing     = "file-missing"     // a resource file is missing or empty
	ClassFileExposed     = "file-exposed"     // other users can read a secret in a resource file
	ClassDamaged         = "damaged"          // a stored resource cannot be read
	ClassInert           = "inert"            // this version ignores stored resources
	ClassNameTwice       = "name-twice"       // two living nodes have one name
	ClassInterceptRecord = "intercept-record" // a record of a redirection cannot be read
)

// ProblemClass is a class of problems.
type ProblemClass struct {
	Name    string // equals [Check].Name if a check finds the problems
	Command string // the first command to run, unless a problem has a more precise one
}

// ProblemClasses lists all classes of problems, sorted by name.
var ProblemClasses = []ProblemClass{
	{"access", "nearside access list"},
	{"access-logs", "nearside logs access"},
	{"api-socket", "nearside config show"},
	{"audit-log", "nearside logs audit"},
	{"capabilities", "nearside intercept status"},
	{"clock", "timedatectl"},
	{"config", "nearside debug pprof goroutine"},
	{ClassDamaged, "nearside status"},
	{"dns", "nearside dns table"},
	{"dns-answers", "nearside dns lookup canary.nearside.invalid"},
	{"dns-sockets", "nearside config show"},
	{"dns-upstreams", "nearside dns table"},
	{"envoy", "nearside config show"},
	{"features", "nearside access list"},
	{ClassFileConflict, "nearside status"},
	{ClassFileExposed, "nearside status"},
	{ClassFileFault, "nearside validate -f FILE"},
	{ClassFileMissing, "nearside status"},
	{"groups", "nearside access list"},
	{ClassInert, "nearside api-resources"},
	{ClassInterceptRecord, "nearside intercept status"},
	{"interception", "nearside intercept status"},
	{ClassLogCollector, "nearside status"},
	{ClassLogDirectory, "nearside logs access"},
	{ClassLogDropped, "nearside status"},
	{"listeners", "nearside config show"},
	{"log-file", "nearside config show"},
	{ClassLogGap, "nearside status"},
	{ClassLogSenders, "nearside status"},
	{ClassLogSpool, "nearside status"},
	{ClassLostLines, "nearside status"},
	{"memory", "nearside status"},
	{ClassNameTwice, "nearside members -o wide"},
	{"peers", "nearside members"},
	{ClassPending, "nearside get dataplanes"},
	{ClassNoEffect, "nearside status"},
	{"pool-files", "nearside members"},
	{"pool-state", "nearside members"},
	{"pool-trust", "nearside trust show"},
	{"published-directories", "nearside config show"},
	{ClassRejected, "nearside get dataplanes"},
	{ClassResource, "nearside status"},
	{"space", "df -h"},
	{"state", "nearside config show"},
	{"state-file", "nearside config show"},
	{ClassStreamRefused, "nearside status"},
	{"tokens", "nearside token keys"},
	{ClassUnknownNode, "nearside get dataplanes"},
	{ClassWithheld, "nearside get dataplanes"},
	{"xds-socket", "nearside config show"},
}

// CommandOf returns the first command to run for a class of problems.
func CommandOf(class string) string {
	for _, c := range ProblemClasses {
		if c.Name == class {
			return c.Command
		}
	}
	return "nearside status"
}

// KeptUntil says how long the agent retains the resources of a missing file.
func KeptUntil(t time.Time) string {
	if t.IsZero() {
		return "its resources are retained until the directory can be read"
	}
	return "its resources are retained until " + t.UTC().Format(time.RFC3339)
}
