package client

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/draft"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// signTries bounds the attempts of a signed write whose records change at the same time.
const signTries = 5

// maxDrift bounds the difference between the local clock and the date of a version to sign, so that
// an agent cannot obtain a signature for another time.
const maxDrift = 10 * time.Minute

// WriteSigned signs changes with a key, and stores them in one step: resources, or one deletion of
// a resource, or records that are no resources. The bodies are stored unchanged. It omits records
// that the key has signed with the same body. If others change the records at the same time, it
// reads their versions again, and repeats the write a few times.
func (c *Client) WriteSigned(ctx context.Context, key sign.Signer, puts ...engine.Put) (*api.Written, error) {
	return c.WriteSignedIf(ctx, key, nil, puts...)
}

// WriteSignedIf is WriteSigned, but fails with the error of check. The write succeeds only if the
// records do not change after check has begun. A nil check succeeds.
func (c *Client) WriteSignedIf(ctx context.Context, key sign.Signer, check func() error,
	puts ...engine.Put) (*api.Written, error) {
	for try := 1; ; try++ {
		w, err := c.writeSigned(ctx, key, check, puts)
		var p *api.Error
		if try == signTries || !errors.As(err, &p) || p.Type != api.ProblemStale {
			return w, err
		}
	}
}

func (c *Client) writeSigned(ctx context.Context, key sign.Signer, check func() error,
	puts []engine.Put) (*api.Written, error) {
	q := api.KeyVersions{Items: make([]api.Ref, len(puts))}
	for i, p := range puts {
		q.Items[i] = api.RefOf(resource.Key(p.Key))
	}
	next, err := ask[api.NextVersions](ctx, c, "/v1/versions", q)
	if err != nil {
		return nil, err
	}
	if check != nil {
		if err := check(); err != nil {
			return nil, err
		}
	}
	if len(next.Items) != len(puts) {
		return nil, fmt.Errorf("the agent returned %d versions for %d records", len(next.Items), len(puts))
	}
	of := engine.Origin{Name: next.Node, Cluster: next.Cluster, Signer: key}
	if of.Node, err = engine.ParseNodeID(next.NodeID); err != nil {
		return nil, fmt.Errorf("the ID of the agent's node: %w", err)
	}
	out := &api.Written{Warnings: []string{}, Changes: make([]api.Change, len(puts))}
	var list api.SignedRecords
	var at []int
	for i, p := range puts {
		out.Changes[i] = api.Change{Type: p.Key.Kind, Mesh: p.Key.Mesh, Name: p.Key.Name, Action: api.ActionUnchanged}
		if unchanged(&next.Items[i], key, p) {
			continue
		}
		r, err := nextVersion(&next.Items[i], p, of)
		if err != nil {
			return nil, err
		}
		list.Records, at = append(list.Records, base64.StdEncoding.EncodeToString(r.Encoded())), append(at, i)
	}
	if len(at) == 0 {
		return out, nil
	}
	body, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	w, err := call[api.Written](ctx, c, http.MethodPost, "/v1/records", nil, body)
	if err != nil {
		return nil, err
	}
	if len(w.Changes) != len(at) {
		return nil, fmt.Errorf("the agent returned %d changes for %d records", len(w.Changes), len(at))
	}
	for i, x := range at {
		out.Changes[x] = w.Changes[i]
	}
	out.Warnings = w.Warnings
	return out, nil
}

// unchanged reports whether a key has signed the present content already.
func unchanged(v *api.NextVersion, key sign.Signer, p engine.Put) bool {
	sum := sha256.Sum256(p.Body)
	return !p.Delete && v.Exists && v.Content == hex.EncodeToString(sum[:]) &&
		v.Key == sign.Fingerprint(key.Public()).String()
}

// nextVersion makes and signs a version.
func nextVersion(v *api.NextVersion, p engine.Put, of engine.Origin) (*engine.Record, error) {
	hlc, err := strconv.ParseUint(v.HLC, 16, 64)
	if err != nil {
		return nil, fmt.Errorf("the date of %s: %w", p.Key, err)
	}
	lineage, err := base64.StdEncoding.DecodeString(v.Lineage)
	if err != nil {
		return nil, fmt.Errorf("the lineage of %s: %w", p.Key, err)
	}
	d, err := draft.Parse(engine.HLC(hlc), lineage)
	if err != nil {
		return nil, fmt.Errorf("the lineage of %s: %w", p.Key, err)
	}
	if at := d.HLC.Time(); time.Until(at).Abs() > maxDrift {
		return nil, fmt.Errorf("%s is not signed: the agent dates it %s, which differs from the clock of this machine by "+
			"more than %s; set the wrong clock", p.Key, at.UTC().Format(time.RFC3339), maxDrift)
	}
	return d.Seal(p, of)
}
