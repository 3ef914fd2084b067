package fifo

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
)

// Pipe is a FIFO that the process of one owner writes lines into.
type Pipe struct {
	// Path is absolute, and lies directly in PipesOptions.Dir. Its last element is of letters, digits,
	// '.', '_' and '-', does not begin with '.', and has at most 200 bytes.
	Path string
	// UID and GID are the user and the group of the process that writes; -1: unknown.
	UID, GID int
	// To takes the lines. Another one may be set while lines come.
	To accesslog.Destination
	// Labels are kept in a record beside the FIFO, for PipesOptions.Found after a restart.
	Labels map[string]string
}

// Options are the options of OpenPipes. Only Dir is needed.
type Options struct {
	// Dir holds the FIFOs and nothing else. It is made where it is missing; the directory above it
	// must be there. No other Pipes uses it at the same time.
	Dir string
	// Group is that of the writers. It is used where a FIFO cannot be given to its writer's user,
	// since this process is not root or the user is unknown; -1: none.
	Group int
	// Holder keeps the FIFOs open while this process is away; nil: nobody does.
	Holder Holder
	Log    *slog.Logger // nil: slog.Default()
	// Found returns where the lines of a FIFO go that an earlier process has left, by the labels of
	// its record. Where it is nil or returns nil, the lines wait in the FIFO until Set names it. It is
	// called by OpenPipes.
	Found func(path string, labels map[string]string) accesslog.Destination
	// Reopen asks the processes of an owner to open their logs anew (Envoy: POST /reopen_logs), since
	// one of its FIFOs was missing or replaced. Their lines are not lost until they do. It is called
	// by Set and Run and must not block; nil: nobody asks.
	Reopen func(owner string)

	MaxPipes    int           // in all; 0: 1024
	MaxPerOwner int           // 0: 64
	MaxLine     int           // the longest line that is stored whole; 0: DefaultMaxLine
	MaxMemory   int           // bytes that wait in memory for one destination, before lines are dropped; 0: 4 MiB
	Rest        time.Duration // between two reads of a FIFO that has few lines; 0: 100 ms
	// Slow is how long a destination may wait until lines are kept in memory instead; 0: 200 ms.
	Slow time.Duration
	// Linger is how long a FIFO that is no longer wanted has no writer before it is removed, so that a
	// process that opens its logs anew finds it; 0: 5 s.
	Linger time.Duration
	// StopTimeout is how long Run goes on handing lines on after its context has ended; 0: 5 s. What
	// is not read yet stays in the FIFOs.
	StopTimeout time.Duration
}

// Status are the counts and the state of one FIFO.
type Status struct {
	accesslog.Stats
	Owner   string            `json:"owner"`
	Labels  map[string]string `json:"labels,omitempty"`
	Holder  string            `json:"holder"`            // who keeps it open while this process is away; "" for nobody
	Writer  bool              `json:"writer"`            // a process has it open for writing
	Wanted  bool              `json:"wanted"`            // false: it is removed once nobody writes it
	Size    int               `json:"size"`              // bytes that fit into it
	Waiting int               `json:"waiting,omitempty"` // bytes that are in it
}

// Holder keeps FIFOs open while this process is away, so that a process that writes into them
// neither waits in open(2) nor gets EPIPE. Its methods may be called at the same time.
type Holder interface {
	// Hold keeps a FIFO open until Release. f is open for reading, and may be closed when Hold has
	// returned. Holding again under a path that is held replaces what was held.
	Hold(path string, f *os.File) error
	Release(path string) error
	// By says who holds a FIFO, for a status; "" for nobody.
	By(path string) string
}

// Defaults of PipesOptions.
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
		return o, fmt.Errorf("the directory of FIFOs is %q; set an absolute path", o.Dir)
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
		o.Holder = NoHolder()
	}
	return o, nil
}

// maxPipeName leaves room in a file name, and in the name of a descriptor of systemd, for what is
// put around it.
const maxPipeName = 200

var pipeName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)

// nameOf returns the last element of the path of a pipe in dir.
func nameOf(dir, path string) (string, error) {
	name := filepath.Base(path)
	switch {
	case filepath.Join(dir, name) != path:
		return "", fmt.Errorf("the FIFO %q does not lie in %s; name one directly in it", path, dir)
	case len(name) > maxPipeName:
		return "", fmt.Errorf("the name of the FIFO %q has %d bytes; use at most %d", path, len(name), maxPipeName)
	case !pipeName.MatchString(name):
		return "", fmt.Errorf("the name of the FIFO %q may have letters, digits, '.', '_' and '-', and not begin with '.'",
			path)
	}
	return name, nil
}

func sameLabels(a, b map[string]string) bool { return maps.Equal(a, b) }
