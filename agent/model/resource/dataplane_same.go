package resource

import "reflect"

// SameButOutbounds reports whether two Dataplanes say the same but for networking.outbound.
func (d *Dataplane) SameButOutbounds(o *Dataplane) bool {
	a, b := *d, *o
	a.Networking.Outbound, b.Networking.Outbound = nil, nil
	return reflect.DeepEqual(&a, &b)
}
