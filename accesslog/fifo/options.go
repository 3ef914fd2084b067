package fifo

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
)

// Pipe is a FIFO that receives the lines of one owner's process.
type Pipe struct {
	// Path is an absolute path directly in Options.Dir. Its last element consists of letters, digits,
	// '.', '_', and '-', does not begin with '.', and has at most 200 bytes.
	Path string
	// UID and GID are the user and group of the writing process; -1: unknown.
	UID, GID int
	// Link selects a directory of Options.Links in which the FIFO gets the same name; "": none.
	Link string
	// To receives the lines. It can be replaced while lines arrive.
	To accesslog.Destination
	// Labels are stored next to the FIFO, for Options.Found after a restart.
	Labels map[string]string
}

// Options configures Open. Only Dir is required.
type Options struct {
	// Dir contains only the FIFOs. It is created if necessary; its parent must exist. No other Pipes
	// may use it at the same time.
	Dir string
	// Private makes Dir accessible only to this user. All pipes need a Link, and everyone who reaches
	// that may write.
	Private bool
	// Roots are directories that are created if they are missing, with all parents of Dir below them.
	Roots []string
	// Group is the group of the writers. It is used if a FIFO cannot be owned by its writer's user,
	// because this process is not root or the user is unknown; -1: none.
	Group int
	// Holder keeps the FIFOs open while this process is down; nil: none.
	Holder Holder
	Links  Links        // nil: Pipe.Link must be empty
	Log    *slog.Logger // nil: slog.Default()
	// Found returns the destination of a FIFO of an earlier process, by the stored labels. If it is
	// nil or returns nil, the lines stay in the FIFO until Set names it. Open calls it.
	Found func(path string, labels map[string]string) accesslog.Destination
	// Reopen asks the processes of an owner to reopen their logs (Envoy: POST /reopen_logs), because a
	// FIFO was missing or replaced. No lines are lost until they do. Set and Run call it; it must not
	// block. Nil: no request.
	Reopen func(owner string)

	MaxPipes    int           // total; 0: 1024
	MaxPerOwner int           // 0: 64
	MaxLine     int           // maximum length of a line; 0: DefaultMaxLine
	MaxMemory   int           // bytes in memory per destination, above which lines are dropped; 0: 4 MiB
	Rest        time.Duration // between two reads of a FIFO with few lines; 0: 100 ms
	// Slow is how long a destination may block before lines are buffered in memory; 0: 200 ms.
	Slow time.Duration
	// Linger is how long an unwanted FIFO must have no writer before it is removed, so that a process
	// that reopens its logs still finds it; 0: 5 s.
	Linger time.Duration
	// StopTimeout is how long Run delivers buffered lines after its context ends; 0: 5 s. Unread data
	// stays in the FIFOs.
	StopTimeout time.Duration
}

// Status holds the counters and the state of one FIFO.
type Status struct {
	accesslog.Stats
	Owner   string            `json:"owner"`
	Labels  map[string]string `json:"labels,omitempty"`
	Holder  string            `json:"holder"`            // keeps the FIFO open while this process is down; "" for none
	Writer  bool              `json:"writer"`            // a process has it open for writing
	Wanted  bool              `json:"wanted"`            // false: it is removed when it has no writer
	Size    int               `json:"size"`              // capacity in bytes
	Waiting int               `json:"waiting,omitempty"` // bytes in the FIFO
}

// Links gives FIFOs names in directories of writers that do not see Options.Dir.
type Links interface {
	// Link gives the file of a name in the open directory the same name in another one.
	Link(to, name string, dir int) error
	// Unlink removes that name.
	Unlink(to, name string) error
}

// Holder keeps FIFOs open while this process is down, so that writers neither block in open(2) nor
// get EPIPE. Its methods are safe for concurrent use.
type Holder interface {
	// Hold keeps a FIFO open until Release. f is open for reading, and the caller may close it when
	// Hold returns. A second call with the same path replaces the held file.
	Hold(path string, f *os.File) error
	Release(path string) error
	// By returns a description of the process that holds a FIFO, or "".
	By(path string) string
}

// Defaults of Options.
const (
	defaultMaxPipes    = 1024
	defaultMaxPerOwner = 64
	defaultMaxMemory   = 4 << 20
	defaultRest        = 100 * time.Millisecond
	defaultSlow        = 200 * time.Millisecond
	defaultLinger      = 5 * time.Second
	defaultStop        = 5 * time.Second
)

func (o Options) normalized() (Options, error) {
	if !filepath.IsAbs(o.Dir) {
		return o, fmt.Errorf("the FIFO directory is %q; set an absolute path", o.Dir)
	}
	o.Dir = filepath.Clean(o.Dir)
	for _, n := range []struct {
		name  string
		value *int
		def   int
	}{
		{"maxPipes", &o.MaxPipes, defaultMaxPipes}, {"maxPerOwner", &o.MaxPerOwner, defaultMaxPerOwner},
		{"maxLine", &o.MaxLine, accesslog.DefaultMaxLine}, {"maxMemory", &o.MaxMemory, defaultMaxMemory},
	} {
		if *n.value < 0 {
			return o, fmt.Errorf("%s is %d; set a value >= 0", n.name, *n.value)
		}
		if *n.value == 0 {
			*n.value = n.def
		}
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"rest", &o.Rest, defaultRest}, {"slow", &o.Slow, defaultSlow}, {"linger", &o.Linger, defaultLinger},
		{"stopTimeout", &o.StopTimeout, defaultStop},
	} {
		if *d.value < 0 {
			return o, fmt.Errorf("%s is %s; set a value >= 0", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Holder == nil {
		o.Holder = NoHolder{}
	}
	return o, nil
}

// maxPipeName reserves space in file names, and in names of systemd descriptors, for prefixes and
// suffixes.
const maxPipeName = 200

var pipeName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)

// nameOf returns the last element of the path of a pipe in dir.
func nameOf(dir, path string) (string, error) {
	name := filepath.Base(path)
	switch {
	case filepath.Join(dir, name) != path:
		return "", fmt.Errorf("FIFO %q is not in %s; use a path directly in it", path, dir)
	case len(name) > maxPipeName:
		return "", fmt.Errorf("the name of FIFO %q has %d bytes; use at most %d", path, len(name), maxPipeName)
	case !pipeName.MatchString(name):
		return "", fmt.Errorf("the name of FIFO %q is invalid; use letters, digits, '.', '_' and '-', "+
			"and do not begin with '.'", path)
	}
	return name, nil
}
