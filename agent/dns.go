package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/deliver/redirects"
	"github.com/nearside-mesh/nearside/agent/deliver/resolver"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/host/sockets"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// openResolver creates the resolver. It opens no socket.
func (a *Agent) openResolver(cfg *config.Config, g groups) (err error) {
	group := ""
	if cfg.API.Roles == nil && g.api >= 0 {
		group = strconv.Itoa(g.api) // may read everything over the API, like the audit log
	}
	held := sockets.Options{Log: a.log}
	for _, f := range a.deps.Sockets {
		if forDNS(f) {
			held.Given = append(held.Given, f)
		}
	}
	if a.holder != nil {
		held.Holder = a.holder
	}
	a.dnsSockets = sockets.New(held)
	a.resolver, err = resolver.New(resolver.Options{Config: cfg, Last: a.reconciler.Last, Sockets: a.dnsSockets,
		Views: filepath.Join(cfg.Paths.State, resolver.ViewsFile), New: a.newState, Suspended: a.suspendedReason(),
		Mark: intercept.Mark, Group: group, Log: a.log, Now: a.deps.Now})
	if err != nil {
		return err
	}
	if err := a.deps.Metrics.Register(a.resolver); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// forDNS reports whether a file of a socket unit is for the resolver.
func forDNS(f *os.File) bool { return f.Name() == sockets.UnitUDP || f.Name() == sockets.UnitTCP }

// openRenewer creates the renewer of redirections. It renews DNS only if the resolver
// listens, or waits for its address.
func (a *Agent) openRenewer(cfg *config.Config) error {
	o := intercept.RenewerOptions{Dir: filepath.Join(cfg.Paths.Run, intercept.DirName), Sockets: a.dnsSockets,
		Held: a.resolver.Held, Log: a.log}
	if a.resolver.Serves() {
		o.Resolver = a.resolver
	}
	a.keeper = intercept.NewRenewer(o)
	a.watcher = intercept.NewWatcher(intercept.WatcherOptions{Dir: o.Dir, Rules: cfg.InterceptRules(), Log: a.log})
	if err := a.deps.Metrics.Register(interceptions{a.keeper, a.watcher}); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// runHeld runs the parts whose files outlive the agent, and their holder, until ctx ends.
func (a *Agent) runHeld(ctx context.Context) error {
	retain, stop := context.WithCancel(context.WithoutCancel(ctx))
	var holder errgroup.Group
	if a.holder != nil {
		holder.Go(func() error { return a.holder.Run(retain) })
	}
	g, ctx := errgroup.WithContext(ctx)
	names, stopNames := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { return a.runNames(names) })
	g.Go(func() error { return a.pods.Run(ctx) })
	g.Go(func() error {
		defer stopNames() // the resolver answers while the last log lines are written
		if err := a.runLogs(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	err := g.Wait()
	stop()
	return errors.Join(err, holder.Wait())
}

// runNames answers DNS until ctx ends. It removes the redirections before the resolver stops,
// unless a holder keeps the sockets for the next agent.
func (a *Agent) runNames(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { return a.resolver.Run(serving) })
	g.Go(func() error {
		defer stop()
		if err := a.keeper.Run(ctx); err != nil {
			a.log.Error("DNS is not intercepted until the agent is restarted", "error", err)
			<-ctx.Done()
		}
		return nil
	})
	g.Go(func() error { a.redirects.Run(ctx); return nil })
	g.Go(func() error {
		if err := a.watcher.Run(ctx); err != nil {
			a.log.Error("the rules of intercept.watch are not applied until the agent is restarted", "error", err)
		}
		return nil
	})
	return g.Wait()
}

// interceptionCheck reports the state of DNS redirections, or nothing if there are none. It does
// not affect readiness.
func (a *Agent) interceptionCheck() []api.Check {
	list, faults := a.keeper.Status()
	rules := a.watcher.Status()
	pods := a.redirects.Status()
	if len(list)+len(faults)+len(rules) == 0 && pods == (redirects.Status{}) {
		return nil
	}
	c := api.Check{Name: "interception", OK: true,
		Reason: plural.Form(len(list), "1 redirection is", "%d redirections are") + " kept alive"}
	for _, r := range rules {
		c.Reason += "; " + r.String()
	}
	var problem []string
	if pods.Redirected+pods.Stale > 0 {
		c.Reason += "; " + plural.Count(pods.Redirected+pods.Stale, "Envoy") + " in redirected pods"
	}
	if pods.Probes > 0 {
		c.Reason += fmt.Sprintf(", of which %d have ports that the node reaches around the proxy (nearside.io/probe-ports)",
			pods.Probes)
	}
	if n := pods.Failed + pods.Stale; n > 0 {
		problem = append(problem, fmt.Sprintf("%s not redirected as its Dataplane asks, such as %s",
			plural.Form(n, "1 pod is", "%d pods are"), pods.Fault))
	}
	for _, s := range list {
		if s.Reason != "" {
			where := s.Netns
			if where == "" {
				where = "the agent's network namespace"
			}
			problem = append(problem, where+": "+s.Reason)
		}
	}
	for _, r := range rules {
		if r.Reason != "" {
			problem = append(problem, r.String())
		}
	}
	for _, err := range faults {
		problem = append(problem, err.Error())
	}
	if n := len(problem); n > 0 {
		const most = 3
		more := ""
		if n > most {
			problem, more = problem[:most], plural.Form(n-most, "; and 1 more", "; and %d more")
		}
		c.Degraded, c.Reason = true, strings.Join(problem, "; ")+more
	}
	return []api.Check{c}
}

var interceptionsDesc = prometheus.NewDesc("nearside_dns_interceptions",
	"Network namespaces whose DNS is to be redirected to the resolver, by state: active, "+
		"partly (one family of addresses), waiting (names go to the real servers), broken (some queries do not reach it), "+
		"or tcp-only.", []string{"state"}, nil)

var watchedDesc = prometheus.NewDesc("nearside_intercept_watched",
	"Network namespaces that the rules of intercept.watch select, by rule and state: installed, others (installed by the "+
		"command or an earlier rule), failed, or refused (of the host or the agent, or beyond the limit).",
	[]string{"rule", "state"}, nil)

// interceptions counts the redirections whenever metrics are read.
type interceptions struct {
	*intercept.Renewer
	watcher *intercept.Watcher
}

func (i interceptions) Describe(ch chan<- *prometheus.Desc) {
	ch <- interceptionsDesc
	ch <- watchedDesc
}

func (i interceptions) Collect(ch chan<- prometheus.Metric) {
	counts := map[string]int{}
	list, _ := i.Status()
	for _, s := range list {
		counts[s.State]++
	}
	for _, state := range []string{
		intercept.StateActive, intercept.StatePartly, intercept.StateWaiting, intercept.StateBroken, intercept.StateTCPOnly,
	} {
		ch <- prometheus.MustNewConstMetric(interceptionsDesc, prometheus.GaugeValue, float64(counts[state]), state)
	}
	for _, r := range i.watcher.Status() {
		for state, n := range map[string]int{
			"installed": r.Installed, "others": r.Others, "failed": r.Failed, "refused": r.Refused,
		} {
			ch <- prometheus.MustNewConstMetric(watchedDesc, prometheus.GaugeValue, float64(n), r.Name, state)
		}
	}
}
