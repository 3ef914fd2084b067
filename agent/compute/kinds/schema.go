package kinds

import (
	_ "embed" // the comments
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/schema"
)

// comments are the comments on the fields of the document types, one for each line:
// PACKAGE.TYPE.FIELD, a tab, and the text. A test generates them from the sources.
//
//go:embed comments.txt
var comments string

// Schema describes a kind as JSON Schema, with the comments of its fields; see [schema.Of].
func Schema(d resource.Descriptor) map[string]any {
	of := map[string]string{}
	for line := range strings.Lines(comments) {
		key, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		of[key] = text
	}
	return schema.Of(d, func(field string) string { return of[field] })
}
