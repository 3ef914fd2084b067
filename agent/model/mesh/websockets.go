package mesh

// LabelWebSockets of a Mesh says, with "true" or "false", whether requests between its proxies may
// become WebSockets.
const LabelWebSockets = "nearside.io/websockets"

// webSockets reports whether the mesh asks for WebSockets between its proxies.
func (v *View) webSockets() bool {
	value, ok := v.mesh.Labels[LabelWebSockets]
	if ok && value != "true" && value != "false" {
		v.warnf(v.mesh.Key, "labels[%q]: %q is neither true nor false: proxies of the mesh let no request become a "+
			"WebSocket among each other", LabelWebSockets, value)
	}
	return value == "true"
}
