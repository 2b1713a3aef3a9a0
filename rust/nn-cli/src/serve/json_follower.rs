//! Follows the JSON of an object while it is written, character by character.

/// Levels that an object may have; deeper ones are none.
const DEEPEST: usize = 256;

/// What of the outermost object was written last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Part {
    /// Its braces, commas, colons and spaces.
    #[default]
    Between,
    Key,
    /// Of a key.
    Value,
    /// It has its last brace.
    Done,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Value,
    /// A value, or the end of an empty list.
    Element,
    /// A key, or the end of an empty object.
    FirstKey,
    Key,
    Colon,
    /// Behind a value.
    After,
    String,
    Escape,
    /// Digits that an escape still needs.
    Hex(u8),
    /// What is left of a word such as true.
    Word(&'static str),
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    /// An exponent with its sign.
    Signed,
    Power,
    End,
}

/// Takes an object from its first brace to its last one.
#[derive(Debug, Default)]
pub(super) struct JsonFollower {
    pub(super) part: Part,
    at: At,
    /// Brackets.
    open: Vec<char>,
    /// Whether the string is a key.
    is_key: bool,
}

/// Whether JSON has a character between its parts.
pub(super) fn is_space(sign: char) -> bool {
    matches!(sign, ' ' | '\t' | '\n' | '\r')
}

impl JsonFollower {
    /// Takes the next character. False when no object goes on so; then this is of no further use.
    pub(super) fn push(&mut self, sign: char) -> bool {
        match self.at {
            At::String => return self.string(sign),
            At::Escape => {
                self.at = if sign == 'u' { At::Hex(4) } else { At::String };
                return matches!(sign, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' | 'u');
            }
            At::Hex(left) => {
                self.at = if left == 1 { At::String } else { At::Hex(left - 1) };
                return sign.is_ascii_hexdigit();
            }
            At::Word(left) => {
                let Some(rest) = left.strip_prefix(sign) else { return false };
                self.at = At::Word(rest);
                if rest.is_empty() {
                    self.value_ends();
                }
                return true;
            }
            at => {
                if let Some(after) = in_number(at, sign) {
                    self.at = after;
                    return true;
                }
                match at {
                    At::Zero | At::Whole | At::Fraction | At::Power => self.value_ends(),
                    At::Minus | At::Point | At::Exponent | At::Signed => return false,
                    _ => {}
                }
            }
        }
        if is_space(sign) { !self.open.is_empty() } else { self.between(sign) }
    }

    /// A character that is neither in a string, a word or a number nor a space.
    fn between(&mut self, sign: char) -> bool {
        match self.at {
            At::Colon => {
                self.at = At::Value;
                sign == ':'
            }
            At::After if sign == ',' => {
                self.at = if self.open.last() == Some(&'{') { At::Key } else { At::Value };
                true
            }
            At::After => self.closes(sign),
            At::Key | At::FirstKey if sign == '"' => {
                if self.open.len() == 1 {
                    self.part = Part::Key;
                }
                (self.at, self.is_key) = (At::String, true);
                true
            }
            At::FirstKey => self.closes(sign),
            At::Element if sign == ']' => self.closes(sign),
            At::Value | At::Element => self.value_begins(sign),
            _ => false,
        }
    }

    fn value_begins(&mut self, sign: char) -> bool {
        if self.open.is_empty() && sign != '{' {
            return false;
        }
        if self.open.len() == 1 {
            self.part = Part::Value;
        }
        self.at = match sign {
            '"' => At::String,
            '{' | '[' if self.open.len() == DEEPEST => return false,
            '{' => At::FirstKey,
            '[' => At::Element,
            't' => At::Word("rue"),
            'f' => At::Word("alse"),
            'n' => At::Word("ull"),
            '-' => At::Minus,
            '0' => At::Zero,
            '1'..='9' => At::Whole,
            _ => return false,
        };
        self.is_key = false;
        if matches!(sign, '{' | '[') {
            self.open.push(sign);
        }
        true
    }

    fn value_ends(&mut self) {
        self.at = At::After;
        match self.open.len() {
            0 => (self.at, self.part) = (At::End, Part::Done),
            1 => self.part = Part::Between,
            _ => {}
        }
    }

    fn closes(&mut self, sign: char) -> bool {
        if !matches!((self.open.last(), sign), (Some('{'), '}') | (Some('['), ']')) {
            return false;
        }
        self.open.pop();
        self.value_ends();
        true
    }

    fn string(&mut self, sign: char) -> bool {
        match sign {
            '\\' => self.at = At::Escape,
            '"' if self.is_key => {
                self.at = At::Colon;
                if self.open.len() == 1 {
                    self.part = Part::Between;
                }
            }
            '"' => self.value_ends(),
            _ => {}
        }
        sign >= ' '
    }
}

/// Where a number is after a character, if it goes on with it.
fn in_number(at: At, sign: char) -> Option<At> {
    let after = match (at, sign) {
        (At::Minus, '0') => At::Zero,
        (At::Minus | At::Whole, '0'..='9') => At::Whole,
        (At::Zero | At::Whole, '.') => At::Point,
        (At::Zero | At::Whole | At::Fraction, 'e' | 'E') => At::Exponent,
        (At::Point | At::Fraction, '0'..='9') => At::Fraction,
        (At::Exponent, '+' | '-') => At::Signed,
        (At::Exponent | At::Signed | At::Power, '0'..='9') => At::Power,
        _ => return None,
    };
    Some(after)
}
