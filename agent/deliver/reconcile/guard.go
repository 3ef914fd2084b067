package reconcile

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// CheckFunc says what the client of a proxy would make of its config, given what it has, as
// [generate.Proxy.Check] does.
type CheckFunc func(p *generate.Proxy, c *check.Checker, had *draft.Sealed) []finding.Finding

// verdict is what the check has said about a config, and what is published of it. It stands until
// the proxy gets another config or, where not all is sent or checked, its client has accepted other
// listeners.
type verdict struct {
	of        *draft.Sealed
	build     *finding.Build    // of the client
	host      *finding.Host     // of the client
	listeners []*draft.Resource // that the client had
	publish   *generate.Proxy   // its Sealed has other forms of what is withheld, or goes without
	withheld  []draft.Withheld
	warnings  []finding.Finding // at most maxProxyWarnings
	more      int               // warnings beyond those
	failed    string            // why there is no verdict, "" when there is
}

// Bounds of what is told of warnings, which never keep a resource from being sent.
const (
	maxProxyWarnings = 10
	maxWarnings      = 100
)

// check brings the verdict of a proxy up to its config. A config that was checked is not checked
// again.
func (p *pass) check(key node.Key, s *proxyState) {
	v := &s.verdict
	ref, _ := node.ParseRef(key.ID) // the proxy exists, so it can be read
	checked := p.offered.of(ref.Mesh, ref.Name, key.Flavor)
	listeners := p.r.o.Publisher.Listeners(key)
	build := p.build(key) // it differs where the proxy is of a zone, or keeps its config
	host := p.r.host(key, s, build)
	if build != s.proxy.Build || host != s.proxy.Host {
		next := *s.proxy
		next.Build, next.Host = build, host
		s.proxy = &next
	}
	switch {
	case v.build != build || v.host != host:
		*v = p.r.checkConfig(key, s, listeners, checked)
	case v.of == s.proxy.Sealed && (len(v.withheld) == 0 && v.failed == "" || draft.SameList(v.listeners, listeners)):
	case p.r.stillFit(key, v, s.proxy):
		v.of, v.publish = s.proxy.Sealed, s.proxy
	default:
		*v = p.r.checkConfig(key, s, listeners, checked)
	}
	if v.failed == "" {
		s.fit = v.publish.Sealed
	}
	who := ref.Key()
	if v.failed != "" {
		s.problem(who, api.SeverityError, v.failed)
	}
	if text := buildWarning(build); text != "" {
		s.problem(who, api.SeverityWarning, text)
	}
	for _, text := range hostWarnings(host, &s.demands) {
		s.problem(who, api.SeverityWarning, text)
	}
	if v.more > 0 {
		s.problem(who, api.SeverityWarning, plural.Count(v.more, "more warning")+" for this proxy")
	}
	s.sent = p.logs(key, who, s)
}

// build returns what the client of a proxy says of itself; nil where that is not known.
func (p *pass) build(key node.Key) *finding.Build {
	if p.r.o.Build == nil {
		return nil
	}
	return p.r.o.Build(key)
}

// stillFit reports whether a verdict by which all was sent also stands for the next config.
func (r *Reconciler) stillFit(key node.Key, v *verdict, proxy *generate.Proxy) bool {
	about := func(f finding.Finding) bool { return f.Type == draft.TypeEndpoint }
	if v.of == nil || v.failed != "" || v.more > 0 || len(v.withheld) > 0 || slices.ContainsFunc(v.warnings, about) {
		return false
	}
	fit, err := guard(r.o.Log, "check of the endpoints of proxy "+key.ID, func() (bool, error) {
		return proxy.StillFit(r.checker, v.of), nil
	})
	if err != nil {
		r.checker = &check.Checker{} // it may have been left half-changed
	}
	return fit
}

// checkConfig checks a config against what the client has: what was published last, and the
// listeners that it has accepted last where there are any, since an address is free only once it
// has let go of it. What the check of an API write has found is taken from there. A config that
// cannot be checked is published as it is.
func (r *Reconciler) checkConfig(key node.Key, s *proxyState, listeners []*draft.Resource,
	checked *change.Checked) verdict {
	began := time.Now()
	v := verdict{of: s.proxy.Sealed, build: s.proxy.Build, host: s.proxy.Host, listeners: listeners}
	had := s.fit
	if had == nil {
		had = &draft.Sealed{}
	}
	if len(listeners) > 0 {
		next := *had
		next.Resources[draft.RankListener] = listeners
		had = &next
	}
	findings, err := guard(r.o.Log, "check of proxy "+key.ID, func() ([]finding.Finding, error) {
		check := func(p *generate.Proxy) []finding.Finding {
			if findings, known := checked.Check(p, had); known {
				return findings
			}
			return r.o.Check(p, r.checker, had)
		}
		findings := check(s.proxy)
		v.publish, v.withheld = s.proxy.Withhold(findings, s.fit, check)
		return findings, nil
	})
	r.checkSeconds.Observe(time.Since(began).Seconds())
	if err != nil {
		r.checker = &check.Checker{} // it may have been left half-changed
		v.publish = s.proxy
		v.failed = fmt.Sprintf("its config could not be checked and is sent unchecked: %v", err)
		return v
	}
	for _, f := range findings {
		switch {
		case f.Severity != finding.Warning:
		case len(v.warnings) < maxProxyWarnings:
			v.warnings = append(v.warnings, f)
		default:
			v.more++
		}
	}
	return v
}

// defectError is a panic in a pure function: an internal error that one input brought to light.
type defectError struct{ what string }

// maxPanic bounds what a panic says, in bytes.
const maxPanic = 2 << 10

func (e *defectError) Error() string {
	return fmt.Sprintf("internal error: %v; the log has the stack, please report it", e.what)
}

// guard calls f and turns a panic into an error, so that one mesh or proxy never harms another.
func guard[T any](log *slog.Logger, what string, f func() (T, error)) (out T, err error) {
	defer func() {
		if v := recover(); v != nil {
			said := clip.Text(fmt.Sprint(v), maxPanic) // it may quote what it met
			log.Error("a defect was met; what it concerns keeps its last state",
				"at", what, "panic", said, "stack", string(debug.Stack()))
			var none T
			out, err = none, &defectError{said}
		}
	}()
	return f()
}
