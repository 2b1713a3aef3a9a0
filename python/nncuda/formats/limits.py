"""How large files from elsewhere may be: bounds far above what exists and far below what would harm the reader.

The three languages have the same ones; tests/bounds.json holds each to them, with the reasons.
"""

JSON_BYTES = 4 << 20
INDEX_BYTES = 32 << 20
HEADER_BYTES = 32 << 20
LINE_BYTES = 16 << 20
NAME_BYTES = 255
TOML_BYTES = 1 << 16
TOML_LINE_BYTES = 1 << 11
TEMPLATE_BYTES = 4 << 20
TOKENIZER_MODEL_BYTES = 32 << 20
TOKENIZER_JSON_BYTES = 64 << 20

#: Brackets, braces, commas and colons of a JSON text outside its strings: what it has more of takes memory for values.
JSON_MARKS = 1 << 21
TOKENIZER_JSON_MARKS = 1 << 24
JSON_DEPTH = 512
JSON_DIGITS = 4300

FILE_TENSORS = 1 << 17
MODEL_TENSORS = 1 << 16
MODEL_PARAMETERS = 1 << 50
COUNT = (1 << 31) - 1

#: Characters of a value, and of a whole problem, in a message.
SHOWN_CHARACTERS = 100
PROBLEM_CHARACTERS = 600
