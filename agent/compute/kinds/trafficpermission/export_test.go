package trafficpermission

// Internals for the external tests, which also need the legacy kind.
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
