package rollout

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// holdBack determines which resources of the config wait: it adds the accepted forms that replace
// suspects and the resources that need them to old, and excludes the names without an accepted
// form.
func (n *proxy) holdBack(old *draft.Lists) {
	n.excluded, n.delayed = [draft.NumTypes]map[string]struct{}{}, [draft.NumTypes]bool{}
	clusters := map[string]struct{}{} // clusters that the client has in no form
	for rank, names := range n.rejected {
		for name, rej := range names {
			r, a := n.configured(rank, name), n.acceptedForm(rank, name)
			if r == nil || r.Version != rej.resource.Version || a != nil && a.Version != r.Version {
				continue
			}
			if n.isHeldBack(rank, rej) {
				n.exclude(rank, name)
			}
			if rank == draft.RankCluster && (rej.alone || rej.suspect) {
				clusters[name] = struct{}{}
			}
		}
	}
	n.awaitClusters(old, clusters)
	n.holdHandovers(old)
}

// awaitClusters lets listeners and routes wait for clusters that they need and the client does not
// have. A resource with an accepted form keeps it until the cluster is acknowledged. A new resource
// waits only for suspected clusters: other clusters are sent before it, and if a cluster is
// rejected for good, the other clusters of the listener still work.
func (n *proxy) awaitClusters(old *draft.Lists, clusters map[string]struct{}) {
	before := n.waiting
	n.waiting = [draft.NumTypes]map[string]*rejection{}
	if len(clusters) == 0 && len(n.accepted[draft.RankListener]) == 0 && len(n.accepted[draft.RankRoute]) == 0 {
		return // as for a new client: nothing has an accepted form, and no cluster is suspected
	}
	if n.hasAllClusters() && !slices.ContainsFunc(n.streams, func(st *Stream) bool { return st.warmForced }) {
		if !draft.SameList(n.cfg.Resources[draft.RankCluster], n.accepted[draft.RankCluster]) {
			draft.Compare(n.accepted[draft.RankCluster], n.cfg.Resources[draft.RankCluster], func(was, next *draft.Resource) {
				if was == nil && n.rejected[draft.RankCluster][next.Name] == nil {
					clusters[next.Name] = struct{}{}
				}
			})
		}
	}
	if len(clusters) == 0 {
		return
	}
	for _, rank := range []int{draft.RankListener, draft.RankRoute} {
		for _, r := range n.cfg.Resources[rank] {
			a := n.acceptedForm(rank, r.Name)
			if a != nil && a.Version == r.Version || n.rejected[rank][r.Name] != nil || n.withheld[rank][r.Name] != nil {
				continue
			}
			name, ok := firstCluster(r, clusters)
			if !ok {
				continue
			}
			rej := n.rejected[draft.RankCluster][name]
			switch {
			case a != nil:
				if _, ok := firstCluster(a, clusters); ok {
					continue // the accepted form needs a missing cluster as well
				}
				old[rank] = append(old[rank], a)
				if rej != nil && rej.alone {
					n.waitForCluster(rank, before[rank][r.Name], r, rej)
				} else {
					n.delayed[rank] = true
				}
			case rej != nil && rej.suspect:
				n.exclude(rank, r.Name)
				n.delayed[rank] = true
			}
		}
	}
}

// firstCluster returns the first of some clusters that a resource names. A cluster that Envoy
// selects at run time does not count: otherwise the resource would wait as long as any cluster is
// rejected.
func firstCluster(r *draft.Resource, clusters map[string]struct{}) (name string, ok bool) {
	for _, name := range r.Refs().Names(envoy.KindCluster) {
		if _, ok := clusters[name]; ok {
			return name, true
		}
	}
	return "", false
}

// hasAllClusters reports whether the client subscribes to all clusters, as Envoy does, and not only
// to those that its routes name.
func (n *proxy) hasAllClusters() bool {
	for _, st := range n.streams {
		if w := st.watches[draft.RankCluster]; w != nil && !w.fresh && w.wildcard {
			return true
		}
	}
	return false
}

// waitForCluster records that a listener or route keeps its accepted form, because the new form
// needs a rejected cluster.
func (n *proxy) waitForCluster(rank int, was *rejection, r *draft.Resource, cluster *rejection) {
	if n.waiting[rank] == nil {
		n.waiting[rank] = map[string]*rejection{}
	}
	cause := draft.ResourceID{TypeURL: draft.TypeCluster, Name: cluster.resource.Name}
	if was == nil || was.resource.Version != r.Version || was.cause != cause {
		was = &rejection{resource: r, reason: "it needs the cluster " + cause.Name + ", which is rejected: " + cluster.reason,
			at: n.proxies.opts.Now(), cause: cause, since: n.rejectedSince(rank, r.Name, n.acceptedRevision[rank]),
			madeAt: n.firstRevision[rank]}
	}
	n.waiting[rank][r.Name] = was
}
