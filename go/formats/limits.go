package formats

// How large files from elsewhere may be: bounds far above what exists and far below what would harm the reader. The
// three languages have the same ones; tests/bounds.json holds each to them, with the reasons.
const (
	JSONBytes           = 4 << 20
	IndexBytes          = 32 << 20
	HeaderBytes         = 32 << 20
	LineBytes           = 16 << 20
	NameBytes           = 255
	TOMLBytes           = 1 << 16
	TOMLLineBytes       = 1 << 11
	TokenizerModelBytes = 32 << 20
	TokenizerJSONBytes  = 64 << 20
	TemplateBytes       = 4 << 20

	// JSONMarks are brackets, braces, commas and colons of a JSON text outside its strings: what it has more of takes
	// memory for values.
	JSONMarks          = 1 << 21
	TokenizerJSONMarks = 1 << 24
	JSONDepth          = 512
	JSONDigits         = 4300

	FileTensors     = 1 << 17
	ModelTensors    = 1 << 16
	ModelParameters = 1 << 50
	MaxCount        = 1<<31 - 1
)

// Characters of a value, and of a whole problem, in a message.
const (
	shownCharacters   = 100
	problemCharacters = 600
)
