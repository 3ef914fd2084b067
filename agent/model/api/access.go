package api

import "github.com/nearside-mesh/nearside/agent/model/access"

// Whoami is GET /v1/access/whoami: the identity of the sender.
type Whoami struct {
	Who      string      `json:"who"`
	Peer     access.Peer `json:"peer"`            // credentials of the connection, from the kernel
	Token    string      `json:"token,omitempty"` // subject of the sent token
	Operator bool        `json:"operator"`        // root or the agent's user, with all permissions
	Roles    []string    `json:"roles"`           // of api.roles
	// Verbs are those that the sender may use on some resource; [Can] checks a specific one.
	Verbs []string `json:"verbs"`
	How   string   `json:"how"` // what grants these verbs
}

// Can is GET /v1/access/can?verb=&kind=&mesh=&name=: whether the sender may do something.
type Can struct {
	Who    string `json:"who"`
	Action string `json:"action"` // in words: "update MeshTimeout default/slow"
	// Allowed says whether such a request is permitted. With Partial, it is permitted only for some
	// of the meshes or names.
	Allowed bool     `json:"allowed"`
	Partial bool     `json:"partial,omitempty"`
	Reason  string   `json:"reason,omitempty"` // why it is denied
	Roles   []string `json:"roles"`            // roles that would allow it and that the sender lacks
}

// AccessList is GET /v1/access: roles, and which peers may be which proxy.
type AccessList struct {
	// Configured says whether api.roles is set. Without it, all users who can open the socket may
	// read, and its group may write.
	Configured bool          `json:"configured"`
	Roles      []access.Role `json:"roles"`   // of the config, with the permissions of their templates
	Missing    []string      `json:"missing"` // subjects that match no user or group
	// ProxiesConfigured says whether xds.access is set, and Proxies are its rules.
	ProxiesConfigured bool               `json:"proxiesConfigured"`
	Proxies           []access.ProxyRule `json:"proxies"`
}
