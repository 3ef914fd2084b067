package statedir

// Faults of a file, in the order of the columns of [Items].
const (
	Missing    = "missing"       // it existed before
	Unreadable = "unreadable"    // the agent's user may not open it
	Directory  = "directory"     // a directory is in its place
	Link       = "link"          // a symbolic link to a file that does not exist is in its place
	Truncated  = "truncated"     // it ends in the middle
	Flipped    = "flipped bit"   // a bit has another value
	Later      = "later version" // a later release wrote it
)

// Faults returns the faults in the order of the columns.
func Faults() []string {
	return []string{Missing, Unreadable, Directory, Link, Truncated, Flipped, Later}
}

// Outcomes of faults.
const (
	// Suspends: the agent serves nothing new, and Envoys keep their config.
	Suspends = "suspends"
	// Warns: the config of Envoys is as before. The status names the fault.
	Warns = "warns"
	// Renews: the agent writes the file again. The config of Envoys is as before, except for
	// certificates.
	Renews = "renews"
	// Works: the fault has no effect.
	Works = "works"
	// None: the file has no such fault, because it has no version or no content.
	None = "–"
)

// Item is a file of the state directory.
type Item struct {
	Name  string // relative to the directory, with upper-case placeholders
	Holds string
	// Outcome is the outcome of each fault, in the order of [Faults].
	Outcome [7]string
	Effect  string // of a fault that does not suspend the agent; "": none
}

// formerStays is the effect of a lost former identity.
const formerStays = "The former node stays a dead member of the pool until you run nearside forget"

// Items returns all files of the state directory whose faults have an effect.
func Items() []Item {
	return []Item{
		{Database, "operators' resources, versions of the pool, history, virtual addresses",
			[...]string{Suspends, Suspends, Suspends, Suspends, Suspends, Warns, Suspends},
			"Content that can be read stays in force. A resource that cannot be read [holds its mesh](#damaged-resources). " +
				"Damage that may hide the names of resources suspends the agent"},
		{NodeKey, "the key of the node, and so its ID in the pool",
			[...]string{Suspends, Suspends, Suspends, Suspends, Suspends, Suspends, None}, ""},
		{NodeKey + ".former", "the key that the node had before",
			[...]string{Works, Suspends, Suspends, Works, Suspends, Suspends, None}, formerStays},
		{"node-id", "the ID of the node in earlier releases, until the pool knows the new one",
			[...]string{Works, Suspends, Suspends, Works, Suspends, Suspends, None}, formerStays},
		{OldPool, "the state of the pool in earlier releases, until the first start of this one",
			[...]string{Works, Suspends, Suspends, Suspends, Suspends, Works, None},
			"The node gets from the other nodes what it cannot read"},
		{TrustPin, "the trust file that the node follows",
			[...]string{Suspends, Warns, Warns, Warns, Warns, Warns, None},
			"The node accepts nothing new from other nodes. What is in force stays"},
		{Revoked, "the list of revoked tokens",
			[...]string{Suspends, Warns, Warns, Warns, Warns, Warns, None}, "No token is accepted"},
		{"tokens/KEY.pem", "a key that signs tokens",
			[...]string{Works, Warns, Warns, Warns, Warns, Warns, None}, "Tokens of the key are refused"},
		{"identity/MESH/ca-BACKEND.pem", "a certificate authority with its key",
			[...]string{Renews, Warns, Warns, Warns, Renews, Renews, None},
			"A new authority signs all certificates. If the file is refused, proxies keep their certificates and config"},
		{"identity/MESH/proxy-DATAPLANE.pem", "the certificate of a proxy with its key",
			[...]string{Renews, Renews, Renews, Renews, Renews, Renews, None}, "The proxy gets a new certificate"},
		{"dns-views.json", "which workloads see which names",
			[...]string{Warns, Warns, Warns, Warns, Warns, Warns, Warns},
			"[Names that a view may change](dns.md#restarts) fail for up to 30 s"},
		{"audit-chain.json", "the number and hash of the last event of the audit log",
			[...]string{Works, Works, Works, Works, Works, Works, Works},
			"The next event says that the record was missing. A cut end of the log is not found"},
		{Inventory, "which of these files the node has had",
			[...]string{Renews, Renews, Warns, Renews, Renews, Renews, Renews},
			"Until it is written again, the loss of another file is not noticed"},
		{"spool", "directory of log lines that wait for their destination",
			[...]string{Works, Works, None, Works, None, None, None}, "Lines wait in memory"},
		{Database + ".format1", "a copy of the state file of an earlier release, as are names with .damaged, .unusable, or " +
			".retired", [...]string{Works, Works, Works, Works, Works, Works, None}, "Only operators use it"},
		{"nearside.lock", "the lock of the agent", [...]string{Renews, Works, Works, Works, None, None, None},
			"nearside.db has a lock of its own"},
	}
}
