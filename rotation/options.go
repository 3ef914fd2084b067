package rotation

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Limits controls rotation and the number of backups. The limits are independent, and 0 disables a
// limit. Names and defaults are those of the audit log of MicroShift.
//
// Programs can decode limits from their config with the tags, which also contain defaults and
// bounds.
type Limits struct {
	// MaxFileSize is the maximum size of the active file in MiB.
	MaxFileSize int `json:"maxFileSize" default:"200" max:"1048576" doc:"Megabytes after which the file is rotated; 0: no limit."`
	// MaxFiles is the maximum number of backups.
	MaxFiles int `json:"maxFiles" default:"10" max:"100000" doc:"Rotated files that are kept; 0: all."`
	// MaxFileAge is the maximum age of a backup since its rotation, in days of 24 hours.
	MaxFileAge int `json:"maxFileAge" max:"36500" doc:"Days that rotated files are kept; 0: for ever."`
}

// Unset marks a limit without a value. A file cannot be opened with it; see [Limits.Or].
const Unset = -1

// Or returns the limits, with [Unset] ones taken from others.
func (l Limits) Or(others Limits) Limits {
	or := func(own, other int) int {
		if own == Unset {
			return other
		}
		return own
	}
	return Limits{or(l.MaxFileSize, others.MaxFileSize), or(l.MaxFiles, others.MaxFiles),
		or(l.MaxFileAge, others.MaxFileAge)}
}

// Text returns the limits as text for [ParseLimits].
func (l Limits) Text() string { return fmt.Sprint(l.MaxFileSize, l.MaxFiles, l.MaxFileAge) }

// ParseLimits parses the output of [Limits.Text].
func ParseLimits(text string) (l Limits, err error) {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return l, fmt.Errorf("%q has %d numbers; limits have 3: size, files, and age", text, len(fields))
	}
	for i, to := range []*int{&l.MaxFileSize, &l.MaxFiles, &l.MaxFileAge} {
		if *to, err = strconv.Atoi(fields[i]); err != nil {
			return Limits{}, fmt.Errorf("limit %d: %q is not a number", i+1, fields[i])
		}
	}
	return l, nil
}

func (l Limits) maxBytes() int64 { return int64(l.MaxFileSize) << 20 }

// Upper bounds of Limits. A size in bytes and an age in nanoseconds must fit into 63 bits.
const (
	maxMB    = 1 << 30
	maxFiles = 1 << 20
	maxDays  = 100 * 365
)

// Validate returns an error for each limit out of range. prefix precedes field names, for example
// "auditLog.".
func (l Limits) Validate(prefix string) error {
	var errs []error
	for _, f := range []struct {
		name       string
		value, max int
	}{
		{"maxFileSize", l.MaxFileSize, maxMB}, {"maxFiles", l.MaxFiles, maxFiles}, {"maxFileAge", l.MaxFileAge, maxDays},
	} {
		switch {
		case f.value < 0:
			errs = append(errs, fmt.Errorf("%s%s: %d is negative; set a value >= 0", prefix, f.name, f.value))
		case f.value > f.max:
			errs = append(errs,
				fmt.Errorf("%s%s: %d is more than %d; set a smaller value, or 0 for no limit", prefix, f.name, f.value, f.max))
		}
	}
	return errors.Join(errs...)
}

// OnFull selects the handling of lines that cannot be written because the disk is full or fails.
type OnFull int

const (
	Block      OnFull = iota // writers wait
	DropNewest               // lines are dropped and counted, and a marker in the file reports them afterwards
)

// Sync selects when data is synced to disk.
type Sync int

const (
	SyncEachSecond Sync = iota // by Run, every second after writes
	SyncEachBatch              // before Write returns
	SyncNever                  // by the operating system
)

// Options configures a [File]. Only Path is required.
type Options struct {
	Path   string // active file; its directory is created
	Limits Limits
	Group  string // name or number of the group of all files; default: group of the process
	// Roots are directories that are created if they are missing, with all parents of the file below
	// them. Other parents must exist.
	Roots []string
	// MinFree is the free space in bytes to leave on the file system. Below it, the disk counts as
	// full.
	MinFree int64
	// PurgeWhenFull removes the oldest backups one by one when the disk is full, before writers wait
	// or lines are dropped.
	PurgeWhenFull bool
	Compress      bool // compress backups with gzip
	Sync          Sync
	OnFull        OnFull
	// Marker returns the line that reports dropped lines. It must be short. Nil: a line of text.
	Marker func(Loss) []byte
	// Now returns the time for names and ages of backups. Nil: time.Now.
	Now func() time.Time

	maxBytes int64 // replaces MaxFileSize in tests
}

// Validate returns an error for each invalid option.
func (o Options) Validate() error {
	var errs []error
	if base := filepath.Base(o.Path); o.Path == "" || base == "." || base == ".." || base == "/" ||
		o.Path[len(o.Path)-1] == '/' {
		errs = append(errs,
			fmt.Errorf("path: %q is not the path of a file; set one, for example /var/log/nearside/access.log", o.Path))
	} else if len(base) > maxBaseLen {
		errs = append(errs, fmt.Errorf("path: the file name has %d bytes, at most %d are allowed; set a shorter name",
			len(base), maxBaseLen))
	}
	if o.MinFree < 0 {
		errs = append(errs, fmt.Errorf("minFree: %d is negative; set a value >= 0", o.MinFree))
	}
	if o.Sync < SyncEachSecond || o.Sync > SyncNever {
		errs = append(errs, fmt.Errorf("sync: %d is unknown; use one of the constants of this package", o.Sync))
	}
	if o.OnFull < Block || o.OnFull > DropNewest {
		errs = append(errs, fmt.Errorf("onFull: %d is unknown; use one of the constants of this package", o.OnFull))
	}
	return errors.Join(append(errs, o.Limits.Validate(""))...)
}

// normalized returns the options with defaults, and the group ID.
func (o Options) normalized() (Options, int, error) {
	if err := o.Validate(); err != nil {
		return o, 0, err
	}
	gid := os.Getegid()
	if o.Group != "" {
		n, err := strconv.ParseUint(o.Group, 10, 31)
		if err != nil {
			g, lookup := user.LookupGroup(o.Group)
			if lookup != nil {
				return o, 0, fmt.Errorf("group %q does not exist; create it or set another group", o.Group)
			}
			if n, err = strconv.ParseUint(g.Gid, 10, 31); err != nil {
				return o, 0, fmt.Errorf("group %q has no numeric GID; set another group", o.Group)
			}
		}
		gid = int(n)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Marker == nil {
		o.Marker = MarkerLine
	}
	if o.maxBytes == 0 {
		o.maxBytes = o.Limits.maxBytes()
	}
	return o, gid, nil
}
