package mesh

// AssignVIPs does to a view that is built what building does for its virtual addresses.
func (v *View) AssignVIPs(o VIPOptions) { v.assignVIPs(&o) }
