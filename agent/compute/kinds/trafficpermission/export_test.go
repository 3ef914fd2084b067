package trafficpermission

// What tests of this package use of its inside. They lie outside of it, as they need the legacy
// kind too.
const (
	Deny            = deny
	AllowShadowDeny = allowShadowDeny
)

func (a Action) Decision() decision {
	d, _ := a.decision()
	return d
}

var (
	FromRules      = fromRules
	PrincipalRules = principalRules
)
