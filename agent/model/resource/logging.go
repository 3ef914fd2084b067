package resource

import (
	"net"
	"path"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/rotation"
)

// Logging lists the destinations of a mesh's access logs, for TrafficLog policies and for
// references of MeshAccessLog.
type Logging struct {
	// DefaultBackend is the backend of TrafficLogs that name none; "" disables their logs.
	DefaultBackend string           `json:"defaultBackend,omitempty"`
	Backends       []LoggingBackend `json:"backends,omitempty"`
}

// LoggingBackend is one destination of access logs.
type LoggingBackend struct {
	Name   string       `json:"name"`
	Format string       `json:"format,omitempty"` // "" selects the default of the protocol
	Type   string       `json:"type"`             // LoggingFile or LoggingTCP
	Conf   *LoggingConf `json:"conf,omitempty"`
}

// LoggingConf is the conf of a backend of either type.
type LoggingConf struct {
	Path    string `json:"path,omitempty"`    // file that Envoy appends to
	Address string `json:"address,omitempty"` // host:port of a collector that accepts lines
}

// Types of logging backends.
const (
	LoggingFile = "file"
	LoggingTCP  = "tcp"
)

// Backend returns the backend of that name, or nil.
func (l *Logging) Backend(name string) *LoggingBackend {
	if l == nil {
		return nil
	}
	return backendNamed(l.Backends, name, func(b *LoggingBackend) string { return b.Name })
}

func (l *Logging) validate(v *Validator) {
	validateBackends(v, l.Backends, l.DefaultBackend, func(b *LoggingBackend) string { return b.Name },
		func(b *LoggingBackend, v *Validator) {
			if v.Field("type").OneOf(b.Type, LoggingFile, LoggingTCP) {
				b.validateConf(v.Field("conf"))
			}
		})
}

// backendNamed returns the backend of that name, or nil.
func backendNamed[B any](list []B, name string, of func(*B) string) *B {
	for i := range list {
		if name != "" && of(&list[i]) == name {
			return &list[i]
		}
	}
	return nil
}

// validateBackends checks that the backends of a list have unique names and that the default is one
// of them, and calls one for each backend.
func validateBackends[B any](v *Validator, list []B, preset string, of func(*B) string, one func(*B, *Validator)) {
	seen := make(map[string]int, len(list))
	for i := range list {
		b, v := &list[i], v.Field("backends").Index(i)
		name := of(b)
		if first, ok := seen[name]; ok {
			v.Field("name").Faultf("%s is already the name of backends[%d]: backend names must be unique",
				strict.Quote(name), first)
		} else if name == "" {
			v.Field("name").Faultf("the name is missing")
		} else {
			seen[name] = i
		}
		one(b, v)
	}
	if _, ok := seen[preset]; preset != "" && !ok {
		v.Field("defaultBackend").Faultf("backend %s does not exist: give the name of one of the backends",
			strict.Quote(preset))
	}
}

func (b *LoggingBackend) validateConf(v *Validator) {
	conf := b.Conf
	if conf == nil {
		conf = &LoggingConf{}
	}
	if b.Type == LoggingFile {
		// Kuma also accepts relative paths, which depend on Envoy's working directory
		if conf.Path == "" || conf.Path[0] == '/' {
			v.Field("path").FilePath(conf.Path)
		}
		v.unset(conf.Address != "", "address", "a file has no address: remove it, or set type to %s", LoggingTCP)
		return
	}
	v.Field("address").HostPort(conf.Address)
	v.unset(conf.Path != "", "path", "a collector has no path: remove it, or set type to %s", LoggingFile)
}

// HostPort checks an address to connect to: an IP address or a host name, and a port. An IPv6
// address must be in brackets (RFC 3986 section 3.2.2).
func (v *Validator) HostPort(s string) {
	if s == "" {
		v.Faultf(`the address is missing: give host:port, for example "127.0.0.1:5000"`)
		return
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		v.Faultf(`%s is not host:port: write for example "example.com:5000" or "[fd00::1]:5000"`, strict.Quote(s))
		return
	}
	v.Host(host)
	n, err := strconv.ParseUint(port, 10, 32)
	if err != nil {
		v.Faultf("%s has no port number after the colon: 1 to 65535 is allowed", strict.Quote(s))
		return
	}
	v.Port(uint32(n))
}

// FilePath checks the path of a log file, which policies name.
func (v *Validator) FilePath(s string) {
	const maxPath = 4095 // PATH_MAX of Linux without its NUL byte
	switch {
	case s == "":
		v.Faultf("the path is missing: name the file that Envoy appends to")
	case s[0] != '/':
		v.Faultf("%s is not an absolute path: begin it with /", strict.Quote(s))
	case strings.HasSuffix(s, "/"):
		v.Faultf("%s is a directory: give a file in it", strict.Quote(s))
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		v.Faultf("%s contains control characters: remove them", strict.Quote(s))
	case len(s) > maxPath:
		v.Faultf("the path has %d bytes, at most %d are allowed", len(s), maxPath)
	default:
		clean := path.Clean(s)
		if base, what := rotation.OwnerOf(path.Base(clean)); base != "" {
			v.Faultf("%s has the name of a %s of %s: use another name", strict.Quote(s), what, base)
		} else if !strings.HasPrefix(clean, "/proc/self/fd/") && !strings.HasPrefix(clean, "/proc/1/fd/") &&
			(strings.HasPrefix(clean, "/proc/") || strings.HasPrefix(clean, "/sys/")) {
			v.Faultf("%s is below a directory of the kernel, whose links lead to other files: use another path",
				strict.Quote(s))
		}
	}
}
