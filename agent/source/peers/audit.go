package peers

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// auditEvery is the interval of audits. A change in progress does not last this long.
const auditEvery = 20 * time.Second

// audit compares the versions that the engine replicates with those of the store, so roots that
// agree mean that the stores agree. It applies a version that the store has missed for two audits,
// and reports it until the store has it.
type audit struct {
	at      time.Time
	clean   auditState            // the last state without a difference
	differs map[resource.Key]bool // at the last audit; guarded by the mu of the source
	lasting []resource.Key        // at the last two audits; guarded by the mu of the source
}

// auditState identifies the contents that an audit compares.
type auditState struct {
	root   engine.Digest
	merges int
}

// runAudit runs an audit if one is due and something has changed since the last one.
func (s *Source) runAudit(now time.Time) {
	if since := now.Sub(s.audit.at); since >= 0 && since < auditEvery {
		return
	}
	s.audit.at = now
	state := auditState{s.node.Root(), s.o.Store.PoolMerges()}
	if state == s.audit.clean {
		return
	}
	differing := s.o.Store.Differing(s.node.Versions())
	slices.SortFunc(differing, resource.Key.Compare)
	s.audit.clean = auditState{}
	if len(differing) == 0 {
		s.audit.clean = state
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.audit.differs
	s.audit.differs, s.audit.lasting = map[resource.Key]bool{}, nil
	var ops []store.Op
	for _, k := range differing {
		s.audit.differs[k] = true
		if !before[k] {
			continue
		}
		s.audit.lasting = append(s.audit.lasting, k)
		if r := s.node.Record(engine.Key(k)); r != nil {
			ops = append(ops, s.o.Store.Merge(r))
		}
	}
	if len(s.audit.lasting) > 0 && !maps.Equal(before, s.audit.differs) {
		s.o.Log.Error("the store differs from the pool of this node", "resources", len(s.audit.lasting),
			"first", s.audit.lasting[0].String())
	}
	s.apply(store.SourceGossip, ops)
}

// text returns the finding of the last audit, or "".
func (a *audit) text() string {
	if len(a.lasting) == 0 {
		return ""
	}
	return fmt.Sprintf("resources whose version in the store differs from the replicated one: %d, the first is %s; "+
		"restart the agent", len(a.lasting), a.lasting[0])
}
