package engine

// Constraint says after each token which may be next: a grammar, a schema, a list of answers. It belongs to one request;
// its methods are called between steps, and by one goroutine at a time. An error of theirs ends the request alone.
type Constraint interface {
	// Mask gives the tokens that are allowed next: a bit a token, in words of 32 from the lowest bit up, 1 where the token is
	// allowed, as llguidance and XGrammar make them. It may have fewer words than the vocabulary needs: ids beyond are not
	// allowed. None of them: the text ends here.
	Mask() ([]uint32, error)
	// Accept says that a token was drawn, which the last mask allowed, and that it does not end the text.
	Accept(token int32) error
}

// checkedMask is a mask as the device has it, without bits beyond the vocabulary, and whether any token is allowed.
func checkedMask(mask []uint32, vocab int) (words []int32, some bool) {
	words = make([]int32, maskWords(vocab))
	for at := range min(len(words), len(mask)) {
		words[at] = int32(mask[at])
	}
	if rest := vocab % 32; rest > 0 {
		words[len(words)-1] &= int32(uint32(1)<<rest - 1)
	}
	for _, word := range words {
		some = some || word != 0
	}
	return words, some
}
