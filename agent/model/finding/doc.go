// Package finding defines the results of a config check: [Finding], the list of [Rules], and
// positions in resources.
package finding
