// Package traffictest contains end-to-end tests. They send connections and requests through real
// Envoys, which a running agent configures, in network namespaces with transparent proxying. They
// compare the results with the explanations of the agent.
package traffictest
