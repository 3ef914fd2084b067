// Package node names xDS clients: the proxy that a node ID stands for, and the form of config that a client takes.
package node
