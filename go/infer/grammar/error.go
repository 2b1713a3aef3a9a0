package grammar

// Error is a grammar, or a part of a schema, that cannot be enforced, or that a text cannot go on.
type Error struct{ Problem string }

func (e *Error) Error() string { return e.Problem }
