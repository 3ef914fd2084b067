package mesh

import "github.com/nearside-mesh/nearside/agent/model/virtualip"

// AssignVIPs assigns virtual addresses to a view that is already built, as Build does.
func (v *View) AssignVIPs(o virtualip.Options) { v.assignVIPs(&o) }
