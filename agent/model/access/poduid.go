package access

// PodUID returns the uid of the Kubernetes pod to which the process of a local peer belongs, or "".
func (p *Peer) PodUID() string { return podOf(p.Cgroup) }
