package mesh

// AssignVIPs assigns virtual addresses to a view that is already built, as Build does.
func (v *View) AssignVIPs(o VIPOptions) { v.assignVIPs(&o) }
