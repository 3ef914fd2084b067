package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/audit"
	"github.com/nearside-mesh/nearside/agent/serve/auditlog"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// auditState is the name of the file in paths.state with the record of the audit log.
const auditState = "audit-chain.json"

// checkAudit reports invalid limits of the audit log.
func checkAudit(cfg *config.Config) (out resource.Faults) {
	if err := cfg.AuditLog.Limits.Validate("auditLog."); err != nil {
		out = append(out, resource.Fault{Reason: err.Error()})
	}
	return out
}

// startAudit opens the audit log, and writes it until stop is called. stop returns when all events
// are written. A log that cannot be opened does not affect proxies; see [auditlog.New].
func (a *Agent) startAudit(cfg *config.Config, g groups) (stop func() error, err error) {
	group := ""
	if cfg.API.Roles == nil && g.api >= 0 {
		group = strconv.Itoa(g.api) // may read everything over the API; with roles, not all group members may
	}
	record := filepath.Join(cfg.Paths.State, auditState)
	if a.withoutDir() {
		record = ""
	}
	a.audit, err = auditlog.New(auditlog.Options{
		Path: cfg.AuditLogPath(), State: record, Limits: cfg.AuditLog.Limits,
		Roots: []string{cfg.Paths.Logs}, Group: group, Profile: audit.Profile(cfg.AuditLog.Profile), Log: a.log,
		Now: a.deps.Now, Registry: a.deps.Metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	writing, endWriting := context.WithCancel(context.Background())
	keeping, endKeeping := context.WithCancel(context.Background())
	var writer, keeper sync.WaitGroup
	writer.Go(func() { a.audit.Run(writing) })
	keeper.Go(func() { a.audit.Maintain(keeping) })
	return func() error {
		endWriting()
		writer.Wait()
		endKeeping()
		keeper.Wait()
		if err := a.audit.Close(); err != nil {
			return errors.Join(errors.New("close the audit log"), err)
		}
		return nil
	}, nil
}

// authors returns a function that names the author of a change.
func (a *Agent) authors() func(name string, signer sign.ID) api.Author {
	if a.peers != nil {
		return a.peers.Authors()
	}
	return func(name string, signer sign.ID) api.Author {
		if signer == (sign.ID{}) {
			return api.Author{Name: name}
		}
		return api.Author{Name: name, Key: signer.String(), Verified: true}
	}
}

// changed publishes changes as events, and records those from files and Envoys in the audit log.
func (a *Agent) changed(changes []store.Change) {
	a.events.Changed(changes)
	a.audit.Changed(changes, func(kind string) string {
		d, _ := a.registry.Lookup(kind)
		return d.Plural
	}, a.authors)
}

// auditChain returns the record of the audit log.
func (a *Agent) auditChain() *api.AuditChain {
	r := a.audit.Chain()
	if r == nil {
		return nil
	}
	return &api.AuditChain{First: r.First, Last: r.Last.Number, Hash: r.Last.Hash.String(), Pending: r.Pending}
}
