// Package offline computes, without an agent, the results that an agent would serve: configs,
// rules, diffs, explanations, check findings, and migrations. It calls the same functions as the
// agent.
package offline
