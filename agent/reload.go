package agent

import (
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/serve/audit"
)

// Reload reads the config again, logs the changes, applies the live keys, and scans the resource
// directory. A config with faults changes nothing.
func (a *Agent) Reload(o config.LoadOptions) {
	select {
	case <-a.ready:
	default:
		return // startup is reading it
	}
	a.dir.Rescan()
	next, _, faults := config.Load(o)
	if faults == nil {
		faults = CheckConfig(next)
	}
	if err := faults.Err(); err != nil {
		a.log.Error("the config has faults and is not applied", "faults", len(faults), "error", err)
		return
	}
	now := a.cfg.Load()
	if a.peers != nil {
		a.peers.ConfigureTrust(next.Trust.Mode, next.Gossip.Admit)
	}
	changes := now.Changes(next)
	if len(changes) == 0 {
		a.log.Info("the config was reloaded; nothing changed")
		return
	}
	live := *now
	live.Log.Level, live.AuditLog = next.Log.Level, next.AuditLog
	live.DNS.TTL, live.DNS.Suffixes, live.DNS.OwnGenerators = next.DNS.TTL, next.DNS.Suffixes, next.DNS.OwnGenerators
	live.DNS.ReachableOnly, live.DNS.QueryLog.Sample = next.DNS.ReachableOnly, next.DNS.QueryLog.Sample
	live.Intercept.Watch = next.Intercept.Watch
	live.DNS.NegativeTTL, live.DNS.Forward, live.DNS.TrustAD = next.DNS.NegativeTTL, next.DNS.Forward, next.DNS.TrustAD
	live.Trust.Mode, live.Gossip.Admit = next.Trust.Mode, next.Gossip.Admit
	a.cfg.Store(&live)
	a.resolver.Configure(&live)
	a.watcher.SetRules(live.InterceptRules())
	a.setLevel(live.Log.Level)
	if live.AuditLog.Profile != now.AuditLog.Profile {
		a.audit.SetProfile(audit.Profile(live.AuditLog.Profile))
	}
	if live.AuditLog.Limits != now.AuditLog.Limits {
		if err := a.audit.SetLimits(live.AuditLog.Limits); err != nil { // already validated
			a.log.Error("cannot change the limits of the audit log", "error", err)
		}
	}
	// Logged last, when the changes are in force.
	for _, c := range changes {
		if c.Live {
			a.log.Info("config key changed", "key", c.Key, "from", c.From, "to", c.To)
		} else {
			a.log.Warn("config key has changed and needs a restart of the agent", "key", c.Key, "from", c.From, "to", c.To)
		}
	}
}
