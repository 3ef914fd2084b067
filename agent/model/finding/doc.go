// Package finding holds what a check has to say about a config: [Finding], the list of [Rules], and
// the places in resources.
package finding
