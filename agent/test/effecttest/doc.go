// Package effecttest compares what the agent says about the effect of each field of each policy
// kind with configs that are generated independently.
package effecttest
