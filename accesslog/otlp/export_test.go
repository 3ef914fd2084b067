package otlp

// Unexported functions used by fuzz targets.
var (
	CountRecords = countRecords
	ParseAnswer  = parseAnswer
)
