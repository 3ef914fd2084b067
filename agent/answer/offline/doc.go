// Package offline computes without an agent what an agent would serve: configs, rules, differences,
// explanations, findings of the check and migrations. It calls the functions that the agent calls.
package offline
