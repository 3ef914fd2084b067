package mesh

// LabelWebSockets is a label of a Mesh. Its value, "true" or "false", decides whether requests
// between its proxies may become WebSockets.
const LabelWebSockets = "nearside.io/websockets"

// webSockets reports whether the mesh asks for WebSockets between its proxies.
func (v *View) webSockets() bool {
	value, ok := v.mesh.Labels[LabelWebSockets]
	if ok && value != "true" && value != "false" {
		v.warnf(v.mesh.Key, "labels[%q]: %q is neither true nor false: proxies of the mesh upgrade no request to a "+
			"WebSocket", LabelWebSockets, value)
	}
	return value == "true"
}
