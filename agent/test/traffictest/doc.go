// Package traffictest holds the tests that send real connections and requests through real Envoys
// with the config of a running agent, in network namespaces with the redirection of a transparent
// proxy, and hold what becomes of them to what the agent explains.
package traffictest
