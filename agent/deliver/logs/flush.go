package logs

import (
	"context"
	"errors"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// podFlush is when an Envoy in a pod has flushed its logs by itself: nearside inject sets
// --file-flush-interval-msec to 1000.
const podFlush = 1100 * time.Millisecond

// awaitFlush waits until an Envoy in a pod has flushed its logs.
func awaitFlush(ctx context.Context) error {
	wait := time.NewTimer(podFlush)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
		return nil
	}
}

// Flush makes the Envoy of a proxy flush its logs, and waits until the current data in its FIFOs is
// delivered. Envoy may write some of it slightly later. Flush returns false for a proxy without
// FIFOs.
func (m *Manager) Flush(ctx context.Context, mesh, name string) (bool, error) {
	m.mu.Lock()
	pipes, ids := m.pipes, []string(nil)
	for id, p := range m.proxies {
		ref, err := node.ParseRef(id)
		if err == nil && ref.Mesh == mesh && ref.Name == name && !p.found && len(p.recent) > 0 {
			ids = append(ids, id)
		}
	}
	m.mu.Unlock()
	if pipes == nil || len(ids) == 0 {
		return false, nil
	}
	for _, id := range ids {
		if m.o.Reopen != nil {
			err := m.o.Reopen(ctx, id)
			if errors.Is(err, access.ErrPodAdmin) {
				err = awaitFlush(ctx)
			}
			if err != nil {
				return true, err
			}
		}
		if err := pipes.Flush(ctx, id); err != nil {
			return true, err
		}
	}
	return true, nil
}
