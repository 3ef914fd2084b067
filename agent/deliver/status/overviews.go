package status

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// HeadOf returns the common first fields of documents listed by kumactl.
func HeadOf(typ string, rec store.Record) api.Head {
	return api.Head{Type: typ, Mesh: rec.Mesh, Name: rec.Name, Created: rec.Created.UTC().Truncate(time.Second),
		Modified: rec.Modified.UTC().Truncate(time.Second), Labels: rec.Labels}
}

// overviews maps kinds of proxies to their overview documents.
var overviews = map[string]struct{ name, field string }{
	kindDataplane:            {"DataplaneOverview", "dataplane"},
	node.ProxyEgress.Kind():  {"ZoneEgressOverview", "zoneEgress"},
	node.ProxyIngress.Kind(): {"ZoneIngressOverview", "zoneIngress"},
}

// Overviews returns the wanted proxies of a kind, in one mesh or in all for "", and a function that
// returns the overview of one of them.
func (t *Tracker) Overviews(snap *store.Snapshot, kind, mesh string, wanted func(*resource.Resource) bool) (
	[]*resource.Resource, func(*resource.Resource) (json.RawMessage, error)) {
	clients := map[resource.Key][]api.ProxyStatus{}
	if t.Proxies != nil {
		for _, c := range t.Proxies() {
			k := node.Ref{Type: c.Type, Mesh: c.Mesh, Name: c.Name}.Key()
			clients[k] = append(clients[k], c)
		}
	}
	var all []*resource.Resource
	for _, res := range snap.Set().Kind(kind) {
		if (mesh == "" || mesh == res.Mesh) && wanted(res) {
			all = append(all, res)
		}
	}
	return all, func(res *resource.Resource) (json.RawMessage, error) {
		rec, _ := snap.Get(res.Key)
		x := t.insight(clients[res.Key])
		if x != nil {
			x.MTLS = t.insightMTLS(snap, res.Key)
		}
		return overview(rec, x)
	}
}

// HasTags reports whether the name of a proxy contains name, whether it has all tags (KEY:VALUE) in
// one inbound or as a gateway, and whether it is a gateway if gateway is "true", or none if
// "false".
func HasTags(res *resource.Resource, tags []string, gateway, name string) bool {
	if !strings.Contains(res.Name, name) {
		return false
	}
	dp, ok := res.Spec.(*resource.Dataplane)
	if !ok {
		return true
	}
	if is := dp.Networking.Gateway != nil; gateway == "true" && !is || gateway == "false" && is {
		return false
	}
	has := func(set map[string]string) bool {
		return !slices.ContainsFunc(tags, func(t string) bool {
			k, v, _ := strings.Cut(t, ":")
			return set[k] != v
		})
	}
	if g := dp.Networking.Gateway; g != nil && has(g.Tags) {
		return true
	}
	return len(tags) == 0 ||
		slices.ContainsFunc(dp.Networking.Inbound, func(in resource.Inbound) bool { return has(in.Tags) })
}

// insight returns nil for a proxy without clients.
func (t *Tracker) insight(clients []api.ProxyStatus) *api.Insight {
	if len(clients) == 0 {
		return nil
	}
	out := &api.Insight{}
	for i := range clients {
		c := &clients[i]
		x := api.Subscription{ID: c.NodeID, ControlPlaneInstanceID: t.Info.Instance, ConnectTime: c.ConnectedAt}
		x.Version.KumaDp.Version, x.Version.Envoy.Version = t.Info.Version, c.Version
		var last time.Time
		sent, acked, rejected := uint64(0), uint64(0), uint64(0)
		for _, of := range c.Types {
			sent, acked, rejected = sent+of.Responses, acked+of.Acknowledged, rejected+of.Rejections
			if of.Reported > 0 && of.Responses == 0 { // an earlier run of the agent sent at least one
				sent, acked = sent+1, acked+1
			}
			for _, at := range []time.Time{of.SentAt, of.AckedAt} {
				if at.After(last) {
					last = at
				}
			}
		}
		if !last.IsZero() {
			x.Status.LastUpdateTime = &last
		}
		x.Status.Total = map[string]string{"responsesSent": fmt.Sprint(sent), "responsesAcknowledged": fmt.Sprint(acked),
			"responsesRejected": fmt.Sprint(rejected)}
		if c.Streams == 0 {
			end := c.ConnectedAt
			if n := len(c.Events); n > 0 {
				end = c.Events[n-1].Time
			}
			x.DisconnectTime = &end
		}
		out.Subscriptions = append(out.Subscriptions, x)
	}
	return out
}

// insightMTLS returns nil for a proxy without a certificate from this agent.
func (t *Tracker) insightMTLS(snap *store.Snapshot, dp resource.Key) *api.InsightMTLS {
	if t.Certificate == nil || dp.Kind != kindDataplane {
		return nil
	}
	c, ok := t.Certificate(dp.Mesh, dp.Name)
	if !ok {
		return nil
	}
	out := &api.InsightMTLS{Until: c.Until.UTC(), At: c.At.UTC(), Made: c.Number, IssuedBackend: c.Backend,
		SupportedBackends: []string{}}
	if res := snap.Set().Get(resource.Key{Kind: kindMesh, Name: dp.Mesh}); res != nil {
		if m, ok := res.Spec.(*resource.Mesh); ok && m.MTLS != nil {
			for i := range m.MTLS.Backends {
				out.SupportedBackends = append(out.SupportedBackends, m.MTLS.Backends[i].Name)
			}
		}
	}
	return out
}

// overview returns one item: the common fields, the specification in a separate field, and the
// insight.
func overview(rec store.Record, x *api.Insight) (json.RawMessage, error) {
	o := overviews[rec.Kind]
	body, err := resource.ShownSpec(rec.Resource)
	if err != nil {
		return nil, err
	}
	head, err := json.Marshal(HeadOf(o.name, rec))
	if err != nil {
		return nil, err
	}
	b := fmt.Appendf(head[:len(head)-1], `,%q:%s`, o.field, body)
	if x != nil {
		insight, err := json.Marshal(x)
		if err != nil {
			return nil, err
		}
		b = fmt.Appendf(b, `,%q:%s`, o.field+"Insight", insight)
	}
	return append(b, '}'), nil
}
