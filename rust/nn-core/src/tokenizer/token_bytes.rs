//! What single tokens add to a text: its characters, and its bytes where it may be a part of a character only.

use super::TextTokenizer;

impl TextTokenizer {
    /// What a token adds to a text that others have begun, and the bytes of it. They differ where the token is a part of a
    /// character, whose text is U+FFFD. Nothing for tokens that add no text, and for ids outside the vocabulary.
    pub fn added(&self, id: i32) -> (String, Vec<u8>) {
        // Some models drop the space at the start of a text, so a token is decoded after another one.
        let anchor = self.ordinary_id();
        let texts = self.decode(&[anchor]).and_then(|start| Ok((start, self.decode(&[anchor, id])?)));
        let Ok((start, both)) = texts else { return (String::new(), Vec::new()) };
        let text: String = both.chars().skip(start.chars().count()).collect();
        let bytes = self.bytes_of(id, &text);
        (text, bytes)
    }

    /// The bytes of a token that decodes to `text`.
    fn bytes_of(&self, id: i32, text: &str) -> Vec<u8> {
        let whole = || text.as_bytes().to_vec();
        let Some(name) = self.piece(id).filter(|_| text.contains('\u{fffd}')) else { return whole() };
        let byte = name.strip_prefix("<0x").and_then(|name| name.strip_suffix('>')).filter(|digits| digits.len() == 2);
        if let Some(byte) = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            return vec![byte];
        }
        name.chars().map(byte_of).collect::<Option<_>>().unwrap_or_else(whole)
    }
}

/// Byte-level tokenizers write each byte as a character: printable ones as themselves, the others from U+0100 on.
/// (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2)
fn byte_of(sign: char) -> Option<u8> {
    let printable = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    match u32::from(sign) {
        code @ 0..=0xff => u8::try_from(code).ok().filter(printable),
        code => (0..=u8::MAX).filter(|byte| !printable(byte)).nth((code - 0x100) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_of_byte_level_tokenizers_are_bytes() {
        let found: Vec<Option<u8>> = "!ĀġĢŃÿ\u{144}".chars().map(byte_of).collect();
        assert_eq!(found, [Some(0x21), Some(0), Some(0x7f), Some(0x80), Some(0xad), Some(0xff), None]);
    }
}
