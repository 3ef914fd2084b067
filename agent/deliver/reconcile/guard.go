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

// CheckFunc returns the problems that a client would have with its config, given its previous one,
// like [generate.Proxy.Check].
type CheckFunc func(p *generate.Proxy, c *check.Checker, had *draft.Sealed) []finding.Finding

// verdict is the result of checking a config, and the config to publish. It is valid until the
// proxy gets another config or, if resources are withheld or unchecked, its client has accepted
// other listeners.
type verdict struct {
	of        *draft.Sealed
	build     *finding.Build    // of the client
	host      *finding.Host     // of the client
	listeners []*draft.Resource // previous listeners of the client
	publish   *generate.Proxy   // config with other versions of withheld resources, or without them
	withheld  []draft.Withheld
	// Rejected resources that the config has without some policies, and the number of those among
	// them that only the check rejects. exclusions is [exclusions.changes].
	substituted []draft.Rejection
	byCheck     int
	exclusions  uint64
	warnings    []finding.Finding // at most maxProxyWarnings
	more        int               // number of further warnings
	failed      string            // why the check failed, or ""
}

// Limits of reported warnings. Warnings never prevent a resource from being sent.
const (
	maxProxyWarnings = 10
	maxWarnings      = 100
)

// check updates the verdict of a proxy. It does not check the same config again.
func (p *pass) check(key node.Key, s *proxyState) {
	v := &s.verdict
	ref, _ := node.ParseRef(key.ID) // valid, because the proxy exists
	checked := p.offered.of(ref.Mesh, ref.Name, key.Flavor)
	listeners := p.r.o.Publisher.Listeners(key)
	build := p.build(key) // may differ for a zone proxy, or if the proxy keeps its config
	host := p.r.host(key, s, build)
	if build != s.proxy.Build || host != s.proxy.Host {
		next := *s.proxy
		next.Build, next.Host = build, host
		s.proxy = &next
	}
	base, substituted := p.withoutRejected(key, ref.Mesh, s)
	switch {
	case v.build != build || v.host != host || v.exclusions != s.exclusions.changes:
		*v = p.checkConfig(key, s, base, listeners, checked)
	case v.of == base.Sealed && (len(v.withheld)+v.byCheck == 0 && v.failed == "" ||
		draft.SameList(v.listeners, listeners)):
	case p.r.stillFit(key, v, base):
		v.of, v.publish = base.Sealed, base
	default:
		*v = p.checkConfig(key, s, base, listeners, checked)
	}
	v.substituted = slices.Concat(substituted, v.substituted[len(v.substituted)-v.byCheck:])
	if v.failed == "" {
		s.fit = v.publish.Sealed
	}
	owner := ref.Key()
	if v.failed != "" {
		s.problem(owner, api.SeverityError, v.failed)
	}
	if text := buildWarning(build); text != "" {
		s.problem(owner, api.SeverityWarning, text)
	}
	for _, text := range hostWarnings(host, &s.demands) {
		s.problem(owner, api.SeverityWarning, text)
	}
	for _, text := range p.withheldKeys(key, s) {
		s.problem(owner, api.SeverityWarning, text)
	}
	if v.more > 0 {
		s.problem(owner, api.SeverityWarning, plural.Count(v.more, "more warning")+" for this proxy")
	}
	s.sent = p.logs(key, owner, s)
}

// withoutRejected returns the config of a proxy with other forms of the resources that its client
// rejected with some policies, and the rejections.
func (p *pass) withoutRejected(key node.Key, mesh string, s *proxyState) (*generate.Proxy, []draft.Rejection) {
	var list []draft.Rejection
	out, err := guard(p.r.o.Log, "rejected resources of proxy "+key.ID, func() (out *generate.Proxy, _ error) {
		p.updateExclusions(key, mesh, s)
		out, list = p.substitute(key, s, s.proxy, nil)
		return out, nil
	})
	if err != nil {
		s.exclusions = exclusions{resets: s.exclusions.resets, changes: s.exclusions.changes + 1}
		return s.proxy, nil
	}
	return out, list
}

// build returns the build of a proxy's client, or nil if it is unknown.
func (p *pass) build(key node.Key) *finding.Build {
	if p.r.o.Build == nil {
		return nil
	}
	return p.r.o.Build(key)
}

// stillFit reports whether a verdict without withheld resources is also valid for the next config.
func (r *Reconciler) stillFit(key node.Key, v *verdict, proxy *generate.Proxy) bool {
	about := func(f finding.Finding) bool { return f.Type == draft.TypeEndpoint }
	if v.of == nil || v.failed != "" || v.more > 0 || len(v.withheld)+v.byCheck > 0 ||
		slices.ContainsFunc(v.warnings, about) {
		return false
	}
	fit, err := guard(r.o.Log, "check of the endpoints of proxy "+key.ID, func() (bool, error) {
		return proxy.StillFit(r.checker, v.of), nil
	})
	if err != nil {
		r.checker = &check.Checker{} // it may be inconsistent
	}
	return fit
}

// checkConfig checks a config against the previous config of the client: the last published one,
// and the listeners that it has accepted, because an address is free only after the client has
// released it. It uses the findings of a pre-write check if available. A config that cannot be
// checked is published unchanged.
//
// A resource that the check rejects is left out or sent in its previous form, unless it has a form
// without the policies that are the cause.
func (p *pass) checkConfig(key node.Key, s *proxyState, base *generate.Proxy, listeners []*draft.Resource,
	checked *change.Checked) verdict {
	r, began := p.r, time.Now()
	v := verdict{of: base.Sealed, build: base.Build, host: base.Host, listeners: listeners,
		exclusions: s.exclusions.changes}
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
		findings := check(base)
		use, rest := base, findings
		use, rest, v.substituted = p.substituteWithheld(key, s, use, rest, check)
		v.byCheck = len(v.substituted)
		v.publish, v.withheld = use.Withhold(rest, s.fit, check)
		return findings, nil
	})
	r.checkSeconds.Observe(time.Since(began).Seconds())
	if err != nil {
		r.checker = &check.Checker{} // it may be inconsistent
		v.publish = base
		v.failed = fmt.Sprintf("its config cannot be checked and is sent unchecked: %v", err)
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

// defectError is a panic in a pure function, caused by an internal error.
type defectError struct{ what string }

// maxPanic limits the text of a panic, in bytes.
const maxPanic = 2 << 10

func (e *defectError) Error() string {
	return fmt.Sprintf("internal error: %v; the log contains the stack, please report it", e.what)
}

// guard calls f and converts a panic to an error, so that one mesh or proxy cannot affect another.
func guard[T any](log *slog.Logger, what string, f func() (T, error)) (out T, err error) {
	defer func() {
		if v := recover(); v != nil {
			text := clip.Text(fmt.Sprint(v), maxPanic) // may quote its input
			log.Error("internal error; the affected object keeps its last config",
				"at", what, "panic", text, "stack", string(debug.Stack()))
			var none T
			out, err = none, &defectError{text}
		}
	}()
	return f()
}
