package otlp

// What fuzz targets need.
var (
	CountRecords = countRecords
	ParseAnswer  = parseAnswer
)
