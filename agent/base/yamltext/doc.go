// Package yamltext inserts values into the text of YAML and JSON documents, and leaves all other
// bytes as they are: comments, quotes, anchors, flow style, and line ends.
//
// A [File] has the trees of its documents. [Node.AddKey], [Node.Prepend], [Node.Append], and
// [Node.SetScalar] edit a tree, and [File.Text] writes the edits into the text. Text parses its own
// result and compares the values with the edited trees, so the result is right or an error.
//
// The package is pure.
package yamltext
