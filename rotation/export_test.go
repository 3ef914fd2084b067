package rotation

// WithMaxBytes returns the options with a limit that is smaller than a megabyte.
func (o Options) WithMaxBytes(n int64) Options {
	o.maxBytes = n
	return o
}

// ParseName exposes which names are backups of a file: stamp in ms, compressed.
func ParseName(base, name string) (stamp int64, gz, ok bool) { return namesOf(base).parse(name) }

// BackupName exposes the name of a backup.
func BackupName(base string, stamp int64) string { return namesOf(base).backup(stamp) }

// Held exposes how many bytes a reader keeps in memory.
func (r *Reader) Memory() int { return cap(r.buf) + cap(r.expected) }

// Check exposes what Run does each minute.
func (p *Plain) Check() error { return p.check() }
