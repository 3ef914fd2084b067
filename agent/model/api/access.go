package api

import "github.com/nearside-mesh/nearside/agent/model/access"

// Whoami is GET /v1/access/whoami: who asks, as the agent sees it.
type Whoami struct {
	Who      string      `json:"who"`
	Peer     access.Peer `json:"peer"`            // what the kernel says of the connection
	Token    string      `json:"token,omitempty"` // subject of the token that was sent
	Operator bool        `json:"operator"`        // root or the agent's user, who may do everything
	Roles    []string    `json:"roles"`           // of api.roles
	// Verbs are those that the peer may use on some resource; [Can] says on which.
	Verbs []string `json:"verbs"`
	How   string   `json:"how"` // what gives these verbs
}

// Can is GET /v1/access/can?verb=&kind=&mesh=&name=: whether the sender may do something.
type Can struct {
	Who    string `json:"who"`
	Action string `json:"action"` // in words: "update MeshTimeout default/slow"
	// Allowed says whether a request for it is answered; with Partial, for some of the meshes or names
	// alone.
	Allowed bool     `json:"allowed"`
	Partial bool     `json:"partial,omitempty"`
	Reason  string   `json:"reason,omitempty"` // why not
	Roles   []string `json:"roles"`            // that the peer lacks and that would allow it
}

// AccessList is GET /v1/access: who may do what with resources, and who may be which proxy.
type AccessList struct {
	// Configured says whether there is an api.roles; without it whoever gets in by the socket may
	// read, and its group write.
	Configured bool          `json:"configured"`
	Roles      []access.Role `json:"roles"`   // of the config, each with the permissions of its template
	Missing    []string      `json:"missing"` // subjects that match nobody
	// ProxiesConfigured says whether there is an xds.access, and Proxies are its items.
	ProxiesConfigured bool               `json:"proxiesConfigured"`
	Proxies           []access.ProxyRule `json:"proxies"`
}
