package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// hostChecks returns the checks of the agent's surroundings, which may take a second. They never
// make the node unready.
func (a *Agent) hostChecks(ctx context.Context) []api.Check {
	var last time.Time
	if l := a.reconciler.Last(); l != nil {
		last = l.At
	}
	cfg := a.cfg.Load()
	out := []api.Check{clockCheck(a.deps.Now(), a.started, last),
		socketCheck("api-socket", "api.socket", cfg.API.Socket.Path, true),
		socketCheck("xds-socket", "xds.socket", cfg.XDS.Socket.Path, false)}
	out = append(out, a.answers.checks(ctx, a)...)
	return append(out, a.capabilityChecks()...)
}

// clockSlack is how far in the future a timestamp may lie before the clock counts as wrong. It
// tolerates small corrections of the clock.
const clockSlack = 2 * time.Second

// clockCheck reports a system clock that cannot be right. last is when the last pass ended, or the
// zero time.
func clockCheck(now, started, last time.Time) api.Check {
	c := api.Check{Name: "clock", OK: true, Degraded: true}
	const remedy = "; set the clock of the host, because certificates are valid for a limited time"
	text := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	switch {
	case now.Year() < 2025: // before the first release: the clock was never set
		c.Error, c.Reason = true, "the time is "+text(now)+remedy
	case started.After(now.Add(clockSlack)):
		c.Reason = "the clock was set back: the time is " + text(now) + ", but the agent started at " + text(started) + remedy
	case last.After(now.Add(clockSlack)):
		c.Reason = "the clock was set back: the time is " + text(now) + ", but the last pass was at " + text(last) + remedy
	default:
		c.Degraded, c.Reason = false, "nothing shows that the clock was set back"
	}
	return c
}

// socketCheck reports a socket that is gone, that no user may open, or whose API every user may
// read.
func socketCheck(name, key, path string, private bool) api.Check {
	c := api.Check{Name: name, OK: true, Degraded: true, Command: "ls -l " + path}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		c.Error = true
		c.Reason = fmt.Sprintf("no program can connect any more: %v; restart the agent, which creates the socket", err)
	case info.Mode()&os.ModeSocket == 0:
		c.Error = true
		c.Reason = fmt.Sprintf("%s is not a socket any more; remove it, and restart the agent", path)
	case private && info.Mode().Perm()&0o002 != 0 && worldSearchable(path):
		c.Reason = fmt.Sprintf("%s has mode %04o: every user of the host may read all resources; set %s.mode to \"0660\", "+
			"and restart the agent", path, info.Mode().Perm(), key)
	case info.Mode().Perm()&0o200 == 0:
		c.Error = true
		c.Reason = fmt.Sprintf("%s has mode %04o: no user can connect; set %s.mode so that its owner may write, and "+
			"restart the agent", path, info.Mode().Perm(), key)
	default:
		c.Degraded, c.Reason = false, fmt.Sprintf("%s has mode %04o", path, info.Mode().Perm())
	}
	return c
}

// worldSearchable reports whether all users may enter the directory of a socket.
func worldSearchable(path string) bool {
	info, err := os.Stat(filepath.Dir(path))
	return err == nil && info.Mode().Perm()&0o001 != 0
}

// answersFor is how long an answer of the resolver to the agent counts.
const answersFor = 5 * time.Second

// answers asks the resolver of an agent for the canary name, which only agents answer, and keeps
// the result for answersFor. It is safe for concurrent use.
type answers struct {
	mu   sync.Mutex // held while it asks
	at   time.Time
	last error
}

// checks returns the checks of the resolver's sockets, or nothing if it is off.
func (q *answers) checks(ctx context.Context, a *Agent) []api.Check {
	s := a.resolver.State()
	if len(s.Listen) == 0 {
		return nil
	}
	c := api.Check{Name: "dns-answers", OK: true}
	if err := q.ask(ctx, s.Listen[0], a.deps.Now()); err != nil {
		c.Degraded, c.Error = true, true
		c.Command = "nearside dns lookup " + s.Canary
		c.Reason = fmt.Sprintf("the resolver does not answer itself: %v; check the firewalls of this host, and whether "+
			"another program listens on dns.listen, with ss -lnup", err)
	} else {
		c.Reason = fmt.Sprintf("the resolver answers over UDP and TCP on %s, %s", s.Listen[0], plural.Count(s.Names, "name"))
	}
	h := api.Check{Name: "dns-sockets", OK: true, Reason: s.Holder + " holds the sockets while the agent is down"}
	if s.Holder == "" {
		h.Degraded = true
		h.Reason = "nothing holds the sockets while the agent is down: lookups then fail, or go to the real servers if " +
			"they are redirected; docs/dns.md says what can hold them"
	}
	return []api.Check{c, h}
}

// ask returns why the resolver at an address does not answer over UDP or TCP.
func (q *answers) ask(ctx context.Context, listen string, now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if age := now.Sub(q.at); age >= 0 && age < answersFor {
		return q.last
	}
	at, err := netip.ParseAddrPort(listen)
	if err == nil {
		switch addr := at.Addr(); {
		case addr.IsUnspecified() && addr.Is4():
			at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port())
		case addr.IsUnspecified():
			at = netip.AddrPortFrom(netip.IPv6Loopback(), at.Port())
		}
		err = errors.Join(intercept.AskCanary(ctx, "udp", at), intercept.AskCanary(ctx, "tcp", at))
	}
	if ctx.Err() == nil { // otherwise the error is of this sender only
		q.at, q.last = now, err
	}
	return err
}

// capabilityChecks reports records of redirections that cannot be read, and capabilities that the
// agent lacks for those that can.
func (a *Agent) capabilityChecks() (out []api.Check) {
	records, errs := intercept.Records(filepath.Join(a.cfg.Load().Paths.Run, intercept.DirName))
	if err := errors.Join(errs...); err != nil {
		out = append(out, api.Check{Name: api.ClassInterceptRecord, OK: true, Degraded: true,
			Reason: err.Error() + "; run nearside intercept install to write the record again"})
	}
	watch := a.cfg.Load().Intercept.Watch
	rules := len(watch)
	if len(records)+rules == 0 {
		return out
	}
	need := []intercept.Capability{intercept.NetAdmin}
	if rules > 0 {
		need = append(need, intercept.SysAdmin)
	}
	if slices.ContainsFunc(watch, func(r config.InterceptRule) bool { return r.Cgroup != "" }) {
		need = append(need, intercept.SysPtrace)
	}
	for _, r := range records {
		if r.Netns != "" && len(need) == 1 {
			need = append(need, intercept.SysAdmin)
		}
	}
	c := api.Check{Name: "capabilities", OK: true, Degraded: true}
	switch missing, err := intercept.Missing(os.Getpid(), need...); {
	case err != nil:
		c.Reason = "the capabilities of the agent cannot be read: " + err.Error()
	case len(missing) > 0:
		var names []string
		for _, m := range missing {
			names = append(names, m.String())
		}
		c.Error = true
		const grant = "the agent lacks the capability %s; grant it (systemd: AmbientCapabilities; in a container: " +
			"securityContext.capabilities.add), or "
		if len(records) > 0 {
			c.Reason = fmt.Sprintf("%s installed but inactive: "+grant+"run nearside intercept uninstall",
				plural.Count(len(records), "redirection"), strings.Join(names, " and "))
		} else {
			c.Reason = fmt.Sprintf("%s not applied: "+grant+"remove intercept.watch",
				plural.Form(rules, "1 rule of intercept.watch is", "%d rules of intercept.watch are"), strings.Join(names, " and "))
		}
	default:
		c.Degraded = false
		what := plural.Count(len(records), "installed redirection")
		if len(records) == 0 {
			what = plural.Form(rules, "1 rule of intercept.watch", "%d rules of intercept.watch")
		}
		c.Reason = fmt.Sprintf("the agent has the capabilities for %s; nearside intercept status shows whether "+
			"interception works", what)
	}
	return append(out, c)
}
