package api

// Author is who made a change. The name is what the writer claims. A signature proves the key or
// the node that vouches for it.
type Author struct {
	Name string `json:"name,omitempty"`
	// Key is the key of an operator that signed the change: its name in the trust file, or its
	// fingerprint.
	Key string `json:"key,omitempty"`
	// Node is the node that signed the change: its name. The node vouches for the users of its API.
	Node     string `json:"node,omitempty"`
	Verified bool   `json:"verified"` // whether there is a valid signature
}

// String returns "alice (key ops)", "alice (node n1)", "alice (unverified)", or "" without a name
// and a signature.
func (a Author) String() string {
	by := ""
	switch {
	case a.Key != "":
		by = "key " + a.Key
	case a.Node != "":
		by = "node " + a.Node
	case a.Name == "":
		return ""
	default:
		by = "unverified"
	}
	if a.Name == "" || a.Name == a.Key || a.Name == a.Node {
		return by
	}
	return a.Name + " (" + by + ")"
}
