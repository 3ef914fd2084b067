package rotation

import (
	"path/filepath"
	"testing"
)

// WithMaxBytes returns the options with a size limit below a megabyte.
func (o Options) WithMaxBytes(n int64) Options {
	o.maxBytes = n
	return o
}

// ParseName exposes naming.parse.
func ParseName(base, name string) (stamp int64, gz, ok bool) { return namesOf(base).parse(name) }

// BackupName exposes the name of a backup.
func BackupName(base string, stamp int64) string { return namesOf(base).backup(stamp) }

// Memory returns the size of a reader's buffers in bytes.
func (r *Reader) Memory() int { return cap(r.buf) + cap(r.expected) }

// Check exposes the check that Run performs each minute.
func (p *Plain) Check() error { return p.check(true) }

// Look exposes the check that Run performs each second.
func (p *Plain) Look() error { return p.check(false) }

// WithPartBytes returns the options with a size of the parts of plain files.
func (o ReaderOptions) WithPartBytes(n int) ReaderOptions {
	o.partBytes = n
	return o
}

// IsCopy reports whether a compressed file counts as made from a plain one, both by path.
func IsCopy(t testing.TB, plain, compressed string) bool {
	t.Helper()
	d, err := openToRead(plain)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	s, err := d.openRead(filepath.Base(plain))
	if err != nil {
		t.Fatal(err)
	}
	defer s.f.Close()
	return d.isCopy(s, filepath.Base(compressed))
}
