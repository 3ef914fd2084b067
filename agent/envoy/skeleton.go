package envoy

// What is being built at the moment; the file goes when it is.

type checkCache struct{}

func (c *Checker) check(prev, next *Snapshot, facts *Facts) []Finding { return nil }

func rules() []Rule { return nil }
