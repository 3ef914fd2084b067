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

// Limits say when a file is rotated and which backups stay. Each is independent of the others, and
// 0 turns it off. The names and defaults are those of the audit log of MicroShift.
//
// Programs may read limits from their config with the tags, which also hold its defaults and
// bounds.
type Limits struct {
	// MaxFileSize is that of the active file, in MB of 2^20 bytes.
	MaxFileSize int `json:"maxFileSize" default:"200" max:"1048576" doc:"Megabytes after which the file is rotated; 0: no limit."`
	// MaxFiles bounds the backups beside the active file.
	MaxFiles int `json:"maxFiles" default:"10" max:"100000" doc:"Rotated files that are kept; 0: all."`
	// MaxFileAge is that of a backup since its rotation, in days of 24 hours.
	MaxFileAge int `json:"maxFileAge" max:"36500" doc:"Days that rotated files are kept; 0: for ever."`
}

// Unset is a limit that is not given. A file cannot be opened with it; see [Limits.Or].
const Unset = -1

// Or returns the limits with those of others where they are [Unset].
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

// Text returns the three numbers in the order of the fields, for [ParseLimits].
func (l Limits) Text() string { return fmt.Sprint(l.MaxFileSize, l.MaxFiles, l.MaxFileAge) }

// ParseLimits reads what [Limits.Text] has written.
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

// Upper bounds of Limits: a size in bytes and an age in nanoseconds must fit 63 bits.
const (
	mostMB    = 1 << 30
	mostFiles = 1 << 20
	mostDays  = 100 * 365
)

// Validate reports each limit that is out of its bounds. The field's name follows prefix, like
// "auditLog.".
func (l Limits) Validate(prefix string) error {
	var errs []error
	for _, f := range []struct {
		name        string
		value, most int
	}{
		{"maxFileSize", l.MaxFileSize, mostMB}, {"maxFiles", l.MaxFiles, mostFiles}, {"maxFileAge", l.MaxFileAge, mostDays},
	} {
		switch {
		case f.value < 0:
			errs = append(errs, fmt.Errorf("%s%s: %d is negative; set a value >= 0", prefix, f.name, f.value))
		case f.value > f.most:
			errs = append(errs,
				fmt.Errorf("%s%s: %d is more than %d; set a smaller value, or 0 for no limit", prefix, f.name, f.value, f.most))
		}
	}
	return errors.Join(errs...)
}

// OnFull says what happens to lines that cannot be written, because the disk is full or fails.
type OnFull int

const (
	Block      OnFull = iota // writers wait until the lines can be written
	DropNewest               // the lines are dropped and counted; once writing works again, a line in the file says so
)

// Sync says when what was written is forced to the disk.
type Sync int

const (
	SyncEachSecond Sync = iota // by Run, once a second where something was written
	SyncEachBatch              // before Write returns
	SyncNever                  // when the system likes
)

// Loss is what was dropped between two batches that were written.
type Loss struct {
	Lines, Bytes uint64
	Since, Until time.Time
	Cause        error
}

// Options are those of a [File]. All but Path may be zero.
type Options struct {
	Path   string // of the active file; its directory is made when only that is missing
	Limits Limits
	Group  string // name or number of the group of all files; "" is that of the process
	// MinFree is the space in bytes that is left on the file system for others: with less, the disk
	// counts as full.
	MinFree int64
	// PurgeWhenFull removes the oldest backups, one by one, before a full disk makes writers wait or
	// drops lines. What is in these is lost and counted as purged.
	PurgeWhenFull bool
	Compress      bool // backups, with gzip
	Sync          Sync
	OnFull        OnFull
	// Marker renders the line that follows a loss, with its LF. It must be short; nil is a line of
	// text.
	Marker func(Loss) []byte
	// Now is the wall clock, for the names and ages of backups; nil is time.Now.
	Now func() time.Time

	maxBytes int64 // instead of MaxFileSize, for tests
}

// Validate reports all that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	if base := filepath.Base(o.Path); o.Path == "" || base == "." || base == ".." || base == "/" ||
		o.Path[len(o.Path)-1] == '/' {
		errs = append(errs,
			fmt.Errorf("path: %q is not the path of a file; set one, like /var/log/nearside/access.log", o.Path))
	} else if len(base) > maxBaseLen {
		errs = append(errs, fmt.Errorf("path: the file name has %d bytes, at most %d are allowed; choose a shorter name",
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

// normalized returns the options with what zero values stand for, and the number of the group.
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
				return o, 0, fmt.Errorf("group: there is no group %q; create it or name another", o.Group)
			}
			if n, err = strconv.ParseUint(g.Gid, 10, 31); err != nil {
				return o, 0, fmt.Errorf("group: the group %q has no usable number; name another", o.Group)
			}
		}
		gid = int(n)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Marker == nil {
		o.Marker = markerLine
	}
	if o.maxBytes == 0 {
		o.maxBytes = o.Limits.maxBytes()
	}
	return o, gid, nil
}

// markerLine is the default of Options.Marker.
func markerLine(l Loss) []byte {
	return fmt.Appendf(nil, "# %d lines (%d bytes) were dropped from %s to %s: %s\n", l.Lines, l.Bytes,
		l.Since.UTC().Format(time.RFC3339Nano), l.Until.UTC().Format(time.RFC3339Nano), causeText(l.Cause))
}
