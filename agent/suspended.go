package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/statedir"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/peers"
)

// ErrStateChanged is the result of [Agent.Run] of a suspended agent after its state has changed.
// The next start may be able to use it.
var ErrStateChanged = errors.New("the files of paths.state have changed: start the agent again, which a service " +
	"manager does by itself")

// An agent whose state cannot be used is suspended. It must not compute configs, because they would
// lack what is in the state. So it reads no resource, joins no pool, and sends nothing to Envoys,
// which keep their config. It serves the API, so that its status can name the fault, forwards DNS
// queries for names outside the meshes, and delivers access logs.

// checkState suspends the agent if its state cannot be used, as far as that follows without reading
// it.
func (a *Agent) checkState(cfg *config.Config) {
	a.state = statedir.Open(cfg.Paths.State, cfg.Paths.Logs, cfg.Paths.Run)
	a.stateStamp = a.state.Stamp() // before the check: a later change is noticed
	a.suspend(a.state.Check())
}

func (a *Agent) suspend(f *statedir.Fault) {
	if f == nil {
		return
	}
	a.suspended = f
	a.log.Error("the state cannot be used, so the agent serves nothing new, and Envoys keep their config",
		"path", f.Path, "reason", f.Reason, "remedy", f.Remedy)
}

// withoutDir reports whether nothing may be written to paths.state, because it is not the
// directory with the state.
func (a *Agent) withoutDir() bool {
	return a.suspended != nil && a.suspended.Path == a.cfg.Load().Paths.State
}

// openState opens the identity of the node and the store. If one of them cannot be used, it
// suspends the agent. A suspended agent has an empty store in memory.
func (a *Agent) openState(cfg *config.Config) error {
	if a.suspended == nil {
		err := a.openStore(cfg)
		if err == nil || errors.Is(err, store.ErrLocked) {
			return err
		}
		if a.suspend(a.faultOf(err)); a.suspended == nil {
			return err
		}
	}
	var err error
	a.store, err = store.Open(store.Options{Log: a.log, Now: a.deps.Now})
	return err
}

// noteSetAside reports a damaged state file that was replaced.
func (a *Agent) noteSetAside() {
	h := a.store.Health()
	if h.SetAside == "" {
		return
	}
	what := "none of it could be read: repeat the writes over the API"
	if h.Salvaged {
		what = "its readable content is in use"
	}
	a.notes = append(a.notes, api.Check{Name: "state-file", OK: true, Degraded: true,
		Reason: "the state file was damaged and is set aside as " + h.SetAside + "; " + what})
}

// openResources joins the pool, reads the resources, and computes the first configs. A suspended
// agent does none of this. leave leaves the pool.
func (a *Agent) openResources(ctx context.Context, cfg *config.Config) (leave func() error, err error) {
	if a.suspended == nil {
		if err := a.openPeers(ctx, cfg); err != nil {
			return nil, err
		}
	}
	a.openDrains(cfg)
	if a.suspended != nil {
		return func() error { return nil }, nil
	}
	a.dir.Scan()
	if leave, err = a.startPeers(ctx); err != nil {
		return nil, err
	}
	if a.peers != nil {
		a.addrs.Gossip = a.peers.Addr()
	}
	a.reconciler.Pass()
	a.rollout.Ready()
	_ = a.store.Flush() // Health reports its errors
	a.recordState()
	return leave, nil
}

// runResources runs the parts that read resources and compute configs, until ctx ends.
func (a *Agent) runResources(ctx context.Context) error {
	if a.suspended != nil {
		return a.awaitState(ctx)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context){a.dir.Run, a.envoys.Run, a.presence.Run, a.probes.Run, a.reconciler.Run,
		a.nacks.Run, a.host.Run, a.store.Run} {
		g.Go(func() error { run(ctx); return nil })
	}
	return g.Wait()
}

// faultOf returns the fault of a file for an error of opening it, or nil for another error.
func (a *Agent) faultOf(err error) *statedir.Fault {
	var file *peers.FileError
	var format *store.FormatError
	var exposed *store.ExposedError
	var unusable *store.UnusableError
	switch {
	case errors.As(err, &file):
		return a.state.Unusable(filepath.Base(file.Path), file.Err)
	case errors.As(err, &unusable):
		return a.state.Unusable(statedir.Database, unusable.Reason)
	case errors.As(err, &format):
		return a.state.Unusable(statedir.Database, fmt.Errorf("it has the format %q of a later release, which can read it",
			format.Format))
	case errors.As(err, &exposed):
		return &statedir.Fault{Path: exposed.Path, Remedy: fmt.Sprintf("if no other user has read or changed it, run chmod "+
			"0600 %s; else also replace all keys that resources contain inline", exposed.Path),
			Reason: fmt.Sprintf("is accessible to other users (mode %#o) and may contain private keys", exposed.Mode)}
	}
	return nil
}

// recordState records which files the state has, so that a later start notices their loss.
func (a *Agent) recordState() {
	if a.suspended != nil || !a.store.Health().Persistent {
		return
	}
	why := ""
	if err := errors.Join(a.state.Record(), a.state.Accepted()); err != nil {
		why = err.Error()
	}
	if before := a.unrecorded.Swap(&why); why != "" && (before == nil || *before != why) {
		a.log.Warn("cannot record which files the state has", "error", why)
	}
}

// unrecordedReason returns why the loss of a file may not be noticed, or "".
func (a *Agent) unrecordedReason() string {
	if why := a.unrecorded.Load(); why != nil && *why != "" {
		return "a later loss of state files may not be noticed: " + *why + "; make the file writable, or remove what is in " +
			"its place"
	}
	return ""
}

// suspendedCheck is the check of a suspended agent.
func (a *Agent) suspendedCheck() api.Check {
	f := a.suspended
	return api.Check{Name: "state", Degraded: true, Error: true, Command: "ls -ld " + f.Path,
		Reason: "the agent serves nothing new, and Envoys keep their config: " + f.Error()}
}

// suspendedReason returns why the resources are unknown, or "".
func (a *Agent) suspendedReason() string {
	if a.suspended == nil {
		return ""
	}
	return "the state of the agent cannot be used; see nearside status"
}

// unserved returns the answer to requests that a suspended agent does not serve, or nil. It serves
// those about itself. The resources are unknown, so answers about them would be wrong.
func (a *Agent) unserved(pattern string) *api.Error {
	if a.suspended == nil || api.ServedWithoutState(pattern) {
		return nil
	}
	return api.NewError(api.StatusUnavailable, api.ProblemNotReady, "The state cannot be used",
		"the agent serves nothing new, and Envoys keep their config: "+strings.ReplaceAll(a.suspended.Error(), "%", "%%"))
}

// stateEvery is the interval in which a suspended agent looks whether its state has changed.
const stateEvery = time.Second

// awaitState returns [ErrStateChanged] once the files of the state have changed, and nil when ctx
// ends.
func (a *Agent) awaitState(ctx context.Context) error {
	t := time.NewTicker(stateEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			if a.state.Stamp() != a.stateStamp {
				a.log.Info("the files of the state have changed; the agent ends, so that it can be started again")
				return ErrStateChanged
			}
		}
	}
}
