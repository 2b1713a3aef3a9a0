//! What the tokens of a request must obey: a grammar, a schema, a list of answers.

use std::fmt::Debug;

use super::drawing::mask_words;
use crate::error::Result;

/// Says after each token which may be next. It belongs to one request; its methods are called on the host, between steps.
///
/// A mask has a bit a token, in words of 32 from the lowest bit up, 1 where the token is allowed, as llguidance makes them. It
/// may have fewer words than the vocabulary needs: ids beyond are not allowed.
pub trait Constraint: Debug + Send {
    /// The tokens that are allowed next. None of them: the text ends here.
    ///
    /// # Errors
    ///
    /// What it returns ends the request.
    fn mask(&mut self) -> Result<Vec<u32>>;

    /// A token was drawn, which the last mask allowed, and it does not end the text.
    ///
    /// # Errors
    ///
    /// What it returns ends the request.
    fn accept(&mut self, token: i32) -> Result<()>;
}

/// A mask as the device has it, `mask_words` words without bits beyond the vocabulary.
pub(super) fn whole_mask(mask: &[u32], vocab: usize) -> Vec<i32> {
    let mut whole = vec![0; mask_words(vocab)];
    for (place, word) in whole.iter_mut().zip(mask) {
        *place = word.cast_signed();
    }
    if let (Some(last), beyond @ 1..) = (whole.last_mut(), vocab % 32) {
        *last &= ((1_u32 << beyond) - 1).cast_signed();
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_cut_and_filled_up() {
        assert_eq!(whole_mask(&[u32::MAX, u32::MAX], 35), [-1, 0b111]);
        assert_eq!(whole_mask(&[5], 64), [5, 0]);
        assert_eq!(whole_mask(&[1, 2, 3], 32), [1]);
    }
}
