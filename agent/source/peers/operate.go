package peers

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/nearside-mesh/nearside/agent/base/files"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// filePrefix marks an entry of gossip.join that names a file with addresses.
const filePrefix = "file:"

// maxSeeds limits the number of addresses in one file.
const maxSeeds = 4096

// seeds returns the addresses to join, including those listed in files: one per line, with comments
// after #.
func (s *Source) seeds() (out []string) {
	missing := ""
	for _, entry := range s.o.Join {
		path, ok := strings.CutPrefix(entry, filePrefix)
		if !ok {
			out = append(out, entry)
			continue
		}
		list, err := readSeeds(path)
		if err != nil {
			missing = fmt.Sprintf("gossip.join: %v", err)
		}
		out = append(out, list...)
	}
	s.seedsErr.Store(&missing)
	return out
}

func readSeeds(path string) (out []string, err error) {
	f, err := files.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan() && len(out) < maxSeeds; n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if _, _, e := net.SplitHostPort(line); e != nil {
			err = cmp.Or(err, fmt.Errorf("%s: line %d: %q is not host:port", path, n, line))
			continue
		}
		out = append(out, line)
	}
	return out, cmp.Or(err, lines.Err())
}

// Join contacts addresses, and returns which ones responded. Afterwards all members know each
// other.
func (s *Source) Join(addrs []string) (out []api.Joined) {
	out = make([]api.Joined, len(addrs))
	var wg sync.WaitGroup
	for i, a := range addrs {
		wg.Go(func() { out[i] = api.Joined{Address: a, Reached: s.node.Join(a) > 0} })
	}
	wg.Wait()
	return out
}

// Leave announces that this node leaves permanently, and ends its membership until the agent
// restarts. Certificates signed by its authorities stay trusted until they expire.
func (s *Source) Leave(ctx context.Context) error {
	s.mu.Lock()
	s.left = true
	now := s.o.Now()
	for key, a := range s.trust.own {
		s.trust.own[key] = retired(a, now)
	}
	remaining := s.trustItems()
	s.mu.Unlock()
	err := s.node.Leave(ctx, remaining)
	if s.end != nil {
		s.end()
	}
	return err
}

// Errors of [Source.Forget].
var (
	errNoNode = errors.New("no node or published directory of the pool has this name or ID; run nearside members to " +
		"list the nodes")
	errAlive = errors.New("the node is alive; stop its agent first, or run nearside leave there")
)

// Forget drops the resources of a node that is permanently gone, or of a published directory that
// no live node has.
func (s *Source) Forget(name string) error {
	var found []engine.NodeID
	for _, m := range s.node.Members() {
		if m.Name != name && m.Node.String() != name {
			continue
		}
		if m.Self || m.State == gossip.StateAlive {
			return errAlive
		}
		found = append(found, m.Node)
	}
	for _, o := range s.node.Owners() { // nodes not seen since the start
		if (o.Name == name || o.Node.String() == name) && o.Node != s.node.Self() && !slices.Contains(found, o.Node) {
			found = append(found, o.Node)
		}
	}
	switch len(found) {
	case 0:
		return s.forgetDirectory(name)
	case 1:
		s.node.Forget(found[0])
		return nil
	}
	return fmt.Errorf("%d nodes have the name %s; use an ID from nearside members -o json", len(found), name)
}

// Ask sends a question to a member; see [Options.Answer].
func (s *Source) Ask(ctx context.Context, id string, question []byte) ([]byte, error) {
	node, err := engine.ParseNodeID(id)
	if err != nil {
		return nil, err
	}
	return s.node.Ask(ctx, node, question)
}

// Conflicts returns resource versions that lost to a concurrent write, and records in limbo.
func (s *Source) Conflicts() []api.Conflict {
	names, author := s.writers(), s.Authors()
	of := func(r *engine.Record, state string) api.Conflict {
		writer := [8]byte(r.Writer)
		c := api.Conflict{ID: r.ID(), State: state, Key: resource.Key(r.Key), Deleted: r.Deleted,
			Written: r.HLC.Time().UTC(), Node: cmp.Or(names[writer], unnamed(writer)),
			Author: author(r.Author, r.Signer())}
		if r.Deleted {
			return c
		}
		res, err := s.o.Decode(r.Body)
		switch {
		case err != nil:
			c.Reason = fmt.Sprintf("this agent version cannot decode it: %v", err)
		case res.Key != c.Key:
			c.Reason = fmt.Sprintf("it holds %s", res.Key)
		default:
			c.Resource = res
		}
		return c
	}
	var out []api.Conflict
	for _, x := range s.node.Conflicts() {
		c := of(x.Record, api.ConflictLost)
		c.Seen = x.Seen.UTC()
		out = append(out, c)
	}
	for _, r := range s.node.Limbo() {
		out = append(out, of(r, api.ConflictLimbo))
	}
	for _, r := range s.node.Held() {
		c := of(r, api.ConflictHeld)
		c.Reason = "the mesh still has resources; its deletion takes effect when they are deleted"
		out = append(out, c)
	}
	return out
}
