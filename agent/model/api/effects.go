package api

// Effects: how much of a policy, an item, or a field is in force. It is in force on a proxy where
// leaving it out changes the proxy's published config.
const (
	EffectAll  = "all"
	EffectPart = "part"
	EffectNone = "none"
	// EffectSame means that another policy sets the same value, so leaving out one of them changes
	// nothing.
	EffectSame = "same"
	// EffectDefault means that the value equals the default.
	EffectDefault = "default"
	// EffectUnknown means that the limit of work was reached before the effect was known, or that the
	// effect is on a proxy that was not examined.
	EffectUnknown = "unknown"
)
