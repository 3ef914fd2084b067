package inspect

// Marshal encodes a document as answers have it.
var Marshal = marshal
