package client

import (
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// ProblemInUse is the type of the problem of a mesh that still has resources.
const ProblemInUse = httpapi.ProblemInUse

// ProblemNotFound is the type of the problem of what does not exist.
const ProblemNotFound = httpapi.ProblemNotFound

// Severities of problems.
const (
	SeverityError   = httpapi.SeverityError
	SeverityWarning = httpapi.SeverityWarning
)

// Key names a resource.
type Key = resource.Key

// Nearest returns the name that a misspelt one was likely meant to be, "" when none is near.
func Nearest(name string, names []string) string { return resource.Nearest(name, names) }
