package events

import (
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// Changed publishes changes of the store. It is the Changed function of [store.Options].
func (h *Hub) Changed(changes []store.Change) {
	if !h.active() {
		return
	}
	var list []*event
	for i := range changes {
		c := &changes[i]
		if resource.Internal(c.Key.Kind) {
			continue
		}
		action := api.ActionChanged
		switch {
		case c.Deleted:
			action = api.ActionDeleted
		case c.Created:
			action = api.ActionCreated
		}
		list = append(list, &event{name: api.EventChange, verb: access.VerbList, key: c.Key,
			data: &api.ChangeEvent{Type: c.Key.Kind, Mesh: c.Key.Mesh, Name: c.Key.Name, Action: action,
				Revision: c.Revision.Revision, Source: c.Source.String(), Author: c.Author, Time: c.Time}})
	}
	h.publish(list...)
}

// Recorded publishes what a proxy did. It is the Recorded function of [rollout.Options].
func (h *Hub) Recorded(r rollout.Recorded) {
	if !h.active() {
		return
	}
	k := r.Ref.Key()
	about := api.ProxyOf{Kind: k.Kind, Mesh: k.Mesh, Name: k.Name, Time: r.Time}
	e := &event{name: r.Kind, verb: access.VerbInspect, key: k}
	answer := api.AckEvent{ProxyOf: about, XDSType: r.TypeURL, Version: r.Version}
	switch r.Kind {
	case "connected", "disconnected":
		e.name, e.data = api.EventProxy, &api.ProxyEvent{ProxyOf: about, State: r.Kind}
	case "ack":
		e.data = &answer
	case "nack":
		x := &api.NackEvent{AckEvent: answer, Error: r.Reason, Resources: append([]string{}, r.Resources...),
			Policies: append([]api.Blame{}, r.Policies...)}
		if len(x.Resources) > 0 {
			x.Resource = x.Resources[0]
		}
		e.data = x
	default:
		return
	}
	h.publish(e)
}
