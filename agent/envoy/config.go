package envoy

// Config answers what a proxy with a certain config does with connections and requests. Resources are decoded when they
// are first needed, so a config must not be used by two goroutines at once.
type Config struct {
	snapshot *Snapshot
	facts    *Facts
}

// Open makes a config of a snapshot, which must not be changed. Resources that cannot be decoded are as if they were not
// there; the check tells of them.
func Open(s *Snapshot, facts *Facts) *Config { return &Config{snapshot: s, facts: facts} }

// Connection follows a connection through listener filters, filter chain, network filters and, where the chain forwards
// bytes, to the cluster.
func (c *Config) Connection(conn *Conn) *Trace { return c.trace(conn, nil) }

// Request follows a request on a connection through all of that and the HTTP filters and routes.
func (c *Config) Request(conn *Conn, req *Request) *Trace { return c.trace(conn, req) }
