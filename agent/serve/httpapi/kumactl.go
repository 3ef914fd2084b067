package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// This file has what kumactl asks for beside resources. Its answers hold what kumactl prints;
// docs/api.md says what is different.

func headOf(typ string, rec store.Record) api.Head {
	return api.Head{Type: typ, Mesh: rec.Mesh, Name: rec.Name, Created: rec.Created.UTC().Truncate(time.Second),
		Modified: rec.Modified.UTC().Truncate(time.Second), Labels: rec.Labels}
}

// overview is a list with what is known of each proxy.
type overview struct {
	kind, name, field string
}

var (
	dataplaneOverview = overview{kindDataplane, "DataplaneOverview", "dataplane"}
	egressOverview    = overview{node.ProxyEgress.Kind(), "ZoneEgressOverview", "zoneEgress"}
	ingressOverview   = overview{node.ProxyIngress.Kind(), "ZoneIngressOverview", "zoneIngress"}
)

// insightMTLS is nil for a proxy without a certificate of this agent.
func (s *Server) insightMTLS(snap *store.Snapshot, dp resource.Key) *api.InsightMTLS {
	if s.opts.Certificate == nil || dp.Kind != kindDataplane {
		return nil
	}
	c, ok := s.opts.Certificate(dp.Mesh, dp.Name)
	if !ok {
		return nil
	}
	out := &api.InsightMTLS{Until: c.Until.UTC(), At: c.At.UTC(), Made: c.Made, IssuedBackend: c.Backend,
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

// insight is nil for a proxy that no client has asked for.
func (s *Server) insight(clients []api.ProxyStatus) *api.Insight {
	if len(clients) == 0 {
		return nil
	}
	out := &api.Insight{}
	for i := range clients {
		c := &clients[i]
		x := api.Subscription{ID: c.NodeID, ControlPlaneInstanceID: s.opts.Info.Instance, ConnectTime: c.ConnectedAt}
		x.Version.KumaDp.Version, x.Version.Envoy.Version = s.opts.Info.Version, c.Version
		var last time.Time
		sent, acked, rejected := 0, 0, 0
		for _, t := range c.Types {
			if t.SentVersion != "" {
				sent++
			}
			switch {
			case t.NACK != nil:
				rejected++
			case t.AckedVersion != "":
				acked++
			}
			for _, at := range []time.Time{t.SentAt, t.AckedAt} {
				if at.After(last) {
					last = at
				}
			}
		}
		if !last.IsZero() {
			x.Status.LastUpdateTime = &last
		}
		x.Status.Total = map[string]string{"responsesSent": strconv.Itoa(sent), "responsesAcknowledged": strconv.Itoa(acked),
			"responsesRejected": strconv.Itoa(rejected)}
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

// overviews is GET …/_overview?tag=KEY:VALUE&gateway=true&name=.
func (s *Server) overviews(o overview) handler {
	return func(w http.ResponseWriter, r *http.Request) *api.Error {
		snap := s.opts.Store.Snapshot()
		if e := meshExists(snap, r.PathValue("mesh")); e != nil {
			return e
		}
		clients := map[resource.Key][]api.ProxyStatus{}
		if s.opts.Proxies != nil {
			for _, c := range s.opts.Proxies() {
				k := node.Ref{Type: c.Type, Mesh: c.Mesh, Name: c.Name}.Key()
				clients[k] = append(clients[k], c)
			}
		}
		var all []*resource.Resource
		if set := snap.Set(); r.PathValue("mesh") != "" {
			all = set.InMesh(o.kind, r.PathValue("mesh"))
		} else {
			all = set.Kind(o.kind)
		}
		all = only(all, resourceKey, s.visible(r, access.VerbInspect))
		q := r.URL.Query()
		all = slices.DeleteFunc(slices.Clone(all), func(res *resource.Resource) bool {
			return !matchesOverview(res, q["tag"], q.Get("gateway"), q.Get("name"))
		})
		return writePage(s, w, r, all, func(res *resource.Resource) (json.RawMessage, *api.Error) {
			rec, _ := snap.Get(res.Key)
			x := s.insight(clients[res.Key])
			if x != nil {
				x.MTLS = s.insightMTLS(snap, res.Key)
			}
			return s.overview(rec, o, x)
		})
	}
}

// matchesOverview says whether a proxy is asked for: it has all tags, in one inbound or as a
// gateway.
func matchesOverview(res *resource.Resource, tags []string, gateway, name string) bool {
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

// overview makes one item: the fields that every document has, the rest below a field of its own,
// and the insight.
func (s *Server) overview(rec store.Record, o overview, x *api.Insight) (json.RawMessage, *api.Error) {
	body, err := resource.ShownSpec(rec.Resource)
	if err != nil {
		return nil, encodeFailed(rec.Key, err)
	}
	head, err := json.Marshal(headOf(o.name, rec))
	if err != nil {
		return nil, encodeFailed(rec.Key, err)
	}
	b := fmt.Appendf(head[:len(head)-1], `,%q:%s`, o.field, body)
	if x != nil {
		insight, err := json.Marshal(x)
		if err != nil {
			return nil, encodeFailed(rec.Key, err)
		}
		b = fmt.Appendf(b, `,%q:%s`, o.field+"Insight", insight)
	}
	return append(b, '}'), nil
}
