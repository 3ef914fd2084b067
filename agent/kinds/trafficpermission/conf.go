package trafficpermission

import "github.com/nearside-mesh/nearside/agent/resource"

// Conf says what happens to the connections and requests of a group of clients.
type Conf struct {
	Action Action `json:"action,omitempty"`
}

// Action is the decision about a group of clients, in the spelling of today or that of Kuma 2.0.
type Action string

// decision is what an action means.
type decision int

const (
	deny decision = iota
	allow
	allowShadowDeny // allow, and count as if denied
)

// decision reads the action; false when there is no such action.
func (a Action) decision() (decision, bool) {
	switch a {
	case "Allow", "ALLOW", "allow":
		return allow, true
	case "Deny", "DENY", "deny":
		return deny, true
	case "AllowWithShadowDeny", "ALLOW_WITH_SHADOW_DENY", "allow_with_shadow_deny", "allowWithShadowDeny":
		return allowShadowDeny, true
	}
	return deny, false
}

// Validate checks that the action is there and known.
func (c *Conf) Validate(v *resource.Validator) {
	if _, ok := c.Action.decision(); !ok {
		v.Field("action").OneOf(string(c.Action), "Allow", "Deny", "AllowWithShadowDeny")
	}
}
