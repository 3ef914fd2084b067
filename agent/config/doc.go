// Package config is the agent's own config: its keys, defaults and bounds, and where each value comes from.
//
// [Load] reads flags, environment and file over the defaults and returns every fault at once.
package config
