package envoy

// Checker says what an Envoy would make of configs. It remembers what it found per resource version, so that a config
// in which little changed is checked fast. The zero value is ready to use; it must not be used by two goroutines at
// once. One checker may serve many proxies.
type Checker struct {
	cache checkCache
}

// Check checks a config of a proxy against the rules of [Rules]: each resource by itself with everything that is packed
// in it, the resources against each other, and the step from prev, which is what the proxy has accepted so far (the zero
// value for a proxy that starts). The findings are sorted: by kind, name, severity, rule, pointer.
func (c *Checker) Check(prev, next *Snapshot, facts *Facts) []Finding {
	return c.check(prev, next, facts)
}

// Check is [Checker.Check] without memory.
func Check(prev, next *Snapshot, facts *Facts) []Finding {
	var c Checker
	return c.Check(prev, next, facts)
}

// Rule is one rule that configs are checked against.
type Rule struct {
	Number   int
	Severity Severity // the worst that a breach can have
	Title    string   // one line
	// Unchecked is why nothing here checks the rule, "" for one that is checked.
	Unchecked string
}

// Rules lists the rules, by number.
func Rules() []Rule { return rules() }
