package config

import (
	"fmt"
	"os/user"
	"strconv"
)

// checked lists settings that are less secure than the default and that a running agent reports
// with checks of their own.
func (c *Config) checked() (out []string) {
	if c.AuditLog.Profile == "None" {
		out = append(out, "auditLog.profile is None: requests to the API leave no trace; set Default")
	}
	if why := c.OneGroup(groupNumber(c.API.Socket.Group), groupNumber(c.XDS.Socket.Group)); why != "" {
		out = append(out, why)
	}
	return out
}

// groupNumber returns the gid of a group, or -1 if there is no such group.
func groupNumber(name string) int {
	if g, err := user.LookupGroup(name); err == nil {
		name = g.Gid
	}
	if gid, err := strconv.Atoi(name); err == nil {
		return gid
	}
	return -1
}

// OneGroup returns the danger of one group that may use both sockets, or "". The arguments are the
// gids of the sockets; a negative one gives no group access. With api.roles, the group has no
// permissions.
func (c *Config) OneGroup(api, xds int) string {
	const access = 0o060
	if c.API.Roles != nil || api < 0 || api != xds || c.API.Socket.Mode&access == 0 || c.XDS.Socket.Mode&access == 0 {
		return ""
	}
	return fmt.Sprintf("the group %s may use both the API and the xDS socket, so every Envoy in it may change all "+
		"resources and administer this agent; set xds.socket.group to another group, such as nearside-envoy, and run "+
		"the Envoys with that group only", c.API.Socket.Group)
}
