// Package statetest spoils each file of an agent's state and checks the outcome that package
// statedir documents, with running agents and a connected xDS client.
package statetest
