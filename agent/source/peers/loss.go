package peers

import (
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// The state of the pool has the ID of the node that wrote it, in a bucket that the engine ignores.
const (
	bucketAgent = "agent"
	keyNode     = "node"
)

// checkFiles logs whether the files of this node are missing or belong to different nodes, and
// stores the ID of this node. saved is the state of the pool.
func checkFiles(o Options, saved []engine.Op) error {
	var writer string
	if i := slices.IndexFunc(saved, func(op engine.Op) bool {
		return op.Bucket == bucketAgent && op.Key == keyNode
	}); i >= 0 {
		writer = string(saved[i].Value)
	}
	self := o.Self.String()
	switch {
	case writer == self:
		return nil
	case slices.ContainsFunc(o.Former, func(f gossip.Former) bool { return f.Node.String() == writer }):
		o.Log.Info("this node has a new ID, and publishes its resources under it", "former", writer, "id", self)
	case writer != "" && o.Fresh:
		o.Log.Warn("node-key is missing, so this node has a new ID, and other nodes do not accept its name for a day; "+
			"run \"nearside members forget\" for the old ID on another node", "old", writer, "new", self)
	case writer != "":
		o.Log.Warn("node-key and the state file belong to different nodes: one was copied or restored from a backup",
			"node", self, "state", writer)
	case len(saved) == 0 && !o.Fresh:
		o.Log.Warn("no state of the pool is on disk: this node joins for the first time, or its state file was lost; "+
			"it gets the resources of the pool from other nodes", "node", self)
	}
	err := o.Store.WritePoolState([]engine.Op{{Bucket: bucketAgent, Key: keyNode, Value: []byte(self)}})
	if err != nil {
		return fmt.Errorf("store the ID of this node: %w", err)
	}
	return nil
}

// logReturned logs versions that this node wrote, and that the store has lost. The caller holds
// s.mu.
func (s *Source) logReturned(records []*engine.Record) {
	var returned []resource.Key
	for _, r := range records {
		k := resource.Key(r.Key)
		if have := s.o.Store.Version(k); s.wrote(r) && (have == nil || have.Version().Less(r.Version())) {
			returned = append(returned, k)
		}
	}
	if len(returned) > 0 {
		s.o.Log.Warn("writes of this node came back from other nodes: its state file was older than they are",
			"resources", len(returned), "first", returned[0].String())
	}
}
