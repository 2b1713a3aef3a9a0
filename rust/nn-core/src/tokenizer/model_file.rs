//! The file of a SentencePiece model: a Protocol Buffers message, of which encoding and decoding need a few fields.
//! (sentencepiece_model.proto of <https://github.com/google/sentencepiece>, from where the numbers of the fields are)

use std::collections::HashMap;

use super::trie::Trie;

type Outcome<T> = Result<T, String>;

/// SentencePiece takes no pieces of this many bytes or more.
const LONGEST_PIECE: usize = 8000;

/// What a piece is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    /// Known but not given out: what BPE merges on the way to longer pieces.
    Unused,
    Byte(u8),
}

impl Kind {
    /// Whether the piece stands for text that it is found by.
    pub(super) fn is_text(self) -> bool {
        matches!(self, Kind::Normal | Kind::UserDefined | Kind::Unused)
    }

    /// Its number in files.
    fn number(self) -> u64 {
        match self {
            Kind::Normal => 1,
            Kind::Unknown => 2,
            Kind::Control => 3,
            Kind::UserDefined => 4,
            Kind::Unused => 5,
            Kind::Byte(_) => 6,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) score: f32,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelType {
    Unigram,
    Bpe,
}

/// How text is prepared before it is cut.
#[derive(Debug, Clone)]
pub(super) struct NormalizerSpec {
    pub(super) charsmap: Vec<u8>,
    pub(super) dummy_prefix: bool,
    pub(super) remove_extra_spaces: bool,
    pub(super) escape_spaces: bool,
}

impl Default for NormalizerSpec {
    fn default() -> Self {
        Self { charsmap: Vec::new(), dummy_prefix: true, remove_extra_spaces: true, escape_spaces: true }
    }
}

#[derive(Debug, Clone)]
pub(super) struct ModelFile {
    pub(super) pieces: Vec<Piece>,
    pub(super) kind: ModelType,
    pub(super) space_as_suffix: bool,
    pub(super) byte_fallback: bool,
    pub(super) unknown_surface: String,
    pub(super) begin: String,
    pub(super) end: String,
    pub(super) pad: String,
    pub(super) normalizer: NormalizerSpec,
    pub(super) denormalizer: NormalizerSpec,
}

/// Which id a name has, from a model whose names were found sound.
pub(super) struct Names<'a> {
    text: HashMap<&'a [u8], usize>,
    reserved: HashMap<&'a [u8], usize>,
    pub(super) unknown: usize,
    pub(super) bytes: Option<Box<[usize; 256]>>,
}

impl ModelFile {
    /// A file without pieces, and with what SentencePiece takes for what one does not say.
    pub(super) fn empty() -> Self {
        Self {
            pieces: Vec::new(),
            kind: ModelType::Unigram,
            space_as_suffix: false,
            byte_fallback: false,
            unknown_surface: " \u{2047} ".to_owned(),
            begin: "<s>".to_owned(),
            end: "</s>".to_owned(),
            pad: "<pad>".to_owned(),
            normalizer: NormalizerSpec::default(),
            denormalizer: NormalizerSpec::default(),
        }
    }

    /// Reads a file's content; the error says what is wrong with it.
    pub(super) fn read(file: &[u8]) -> Outcome<Self> {
        let mut model = Self::empty();
        let mut kind = 1;
        fields(file, |field, value| {
            match (field, value) {
                (1, Value::Bytes(content)) => {
                    let piece = read_piece(content, model.pieces.len())?;
                    model.pieces.push(piece);
                }
                (2, Value::Bytes(content)) => fields(content, |field, value| {
                    match (field, value) {
                        (3, Value::Number(number)) if (1..=4).contains(&number) => kind = number,
                        (24, Value::Number(number)) => model.space_as_suffix = number != 0,
                        (35, Value::Number(number)) => model.byte_fallback = number != 0,
                        (44, Value::Bytes(content)) => model.unknown_surface = text(content, "its unknown surface")?,
                        (46, Value::Bytes(content)) if !content.is_empty() => {
                            model.begin = text(content, "its begin piece")?;
                        }
                        (47, Value::Bytes(content)) if !content.is_empty() => {
                            model.end = text(content, "its end piece")?;
                        }
                        (48, Value::Bytes(content)) if !content.is_empty() => {
                            model.pad = text(content, "its padding piece")?;
                        }
                        _ => {}
                    }
                    Ok(())
                })?,
                (3, Value::Bytes(content)) => model.normalizer.read(content)?,
                (5, Value::Bytes(content)) => model.denormalizer.read(content)?,
                _ => {}
            }
            Ok(())
        })?;
        model.kind = match kind {
            1 => ModelType::Unigram,
            2 => ModelType::Bpe,
            _ => return Err(format!("its model type is {kind}; it must be 1 (unigram) or 2 (BPE)")),
        };
        if i32::try_from(model.pieces.len()).is_err() {
            return Err(format!("it has {} pieces; it may have {} at most", model.pieces.len(), i32::MAX));
        }
        Ok(model)
    }

    /// The content of the file: pieces, the kind of model, and the rules for spaces. Other names of begin, end and padding
    /// and maps of characters are left out.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut file = Vec::new();
        for piece in &self.pieces {
            let mut entry = Vec::new();
            put_block(&mut entry, 1, piece.text.as_bytes());
            put_varint(&mut entry, 2 << 3 | 5);
            entry.extend(piece.score.to_le_bytes());
            put_number(&mut entry, 3, piece.kind.number());
            put_block(&mut file, 1, &entry);
        }
        let unknown = self.pieces.iter().position(|piece| piece.kind == Kind::Unknown).unwrap_or(0);
        let mut trainer = Vec::new();
        put_number(&mut trainer, 3, if self.kind == ModelType::Unigram { 1 } else { 2 });
        put_number(&mut trainer, 4, self.pieces.len() as u64);
        put_number(&mut trainer, 35, self.byte_fallback.into());
        put_number(&mut trainer, 40, unknown as u64);
        for absent in [41, 42, 43] {
            put_number(&mut trainer, absent, u64::MAX); // -1, for what the pieces do not have
        }
        put_block(&mut trainer, 45, self.pieces[unknown].text.as_bytes());
        put_block(&mut file, 2, &trainer);
        let mut normalizer = Vec::new();
        put_block(&mut normalizer, 1, b"identity");
        put_number(&mut normalizer, 3, self.normalizer.dummy_prefix.into());
        put_number(&mut normalizer, 4, self.normalizer.remove_extra_spaces.into());
        put_number(&mut normalizer, 5, self.normalizer.escape_spaces.into());
        put_block(&mut file, 3, &normalizer);
        file
    }

    /// Finds the pieces by name, and whether they make a tokenizer.
    pub(super) fn names(&self) -> Outcome<Names<'_>> {
        let mut text = HashMap::new();
        let mut reserved = HashMap::new();
        let mut unknown = None;
        let mut bytes = [None; 256];
        for (id, piece) in self.pieces.iter().enumerate() {
            // Text is never found as a reserved piece, so a name may be one of either kind at once.
            let names = if piece.kind.is_text() { &mut text } else { &mut reserved };
            if names.insert(piece.text.as_bytes(), id).is_some() {
                return Err(format!("piece {id}, {:?}, stands there twice", piece.text));
            }
            match piece.kind {
                Kind::Unknown if unknown.is_some() => return Err(format!("piece {id} is a second unknown piece")),
                Kind::Unknown => unknown = Some(id),
                Kind::Byte(_) if !self.byte_fallback => {
                    return Err(format!("piece {id} stands for a byte, in a model that spells nothing in bytes"));
                }
                Kind::Byte(byte) => bytes[usize::from(byte)] = Some(id),
                _ => {}
            }
        }
        let unknown = unknown.ok_or("it has no unknown piece")?;
        let bytes = match self.byte_fallback {
            false => None,
            true => {
                if let Some(absent) = bytes.iter().position(Option::is_none) {
                    return Err(format!("it spells in bytes and has no piece for byte {absent:#04x}"));
                }
                Some(Box::new(bytes.map(Option::unwrap_or_default)))
            }
        };
        Ok(Names { text, reserved, unknown, bytes })
    }
}

impl Names<'_> {
    /// The piece of a name.
    pub(super) fn id(&self, name: &[u8]) -> Option<usize> {
        self.reserved.get(name).or_else(|| self.text.get(name)).copied()
    }

    /// The controls, found by their names.
    pub(super) fn controls(&self, pieces: &[Piece]) -> Trie {
        let named = self.reserved.iter().map(|(&name, &id)| (name, id));
        Trie::new(named.filter(|&(_, id)| pieces[id].kind == Kind::Control).collect())
    }

    /// The user-defined pieces, which no rule changes and no cut divides.
    pub(super) fn user_defined(&self, pieces: &[Piece]) -> Trie {
        let named = self.text.iter().map(|(&name, &id)| (name, id));
        Trie::new(named.filter(|&(_, id)| pieces[id].kind == Kind::UserDefined).collect())
    }
}

impl NormalizerSpec {
    fn read(&mut self, message: &[u8]) -> Outcome<()> {
        fields(message, |field, value| {
            match (field, value) {
                (2, Value::Bytes(content)) => self.charsmap = content.to_vec(),
                (3, Value::Number(number)) => self.dummy_prefix = number != 0,
                (4, Value::Number(number)) => self.remove_extra_spaces = number != 0,
                (5, Value::Number(number)) => self.escape_spaces = number != 0,
                _ => {}
            }
            Ok(())
        })
    }
}

fn read_piece(message: &[u8], id: usize) -> Outcome<Piece> {
    let mut content: &[u8] = &[];
    let mut score = 0.0;
    let mut kind = 1;
    fields(message, |field, value| {
        match (field, value) {
            (1, Value::Bytes(bytes)) => content = bytes,
            (2, Value::Four(bits)) => score = f32::from_bits(bits),
            (3, Value::Number(number)) if (1..=6).contains(&number) => kind = number,
            _ => {}
        }
        Ok(())
    })?;
    let text = text(content, &format!("piece {id}"))?;
    if text.is_empty() || text.len() >= LONGEST_PIECE || text.contains('\0') {
        return Err(format!("piece {id} must have 1 to {} bytes, none of them zero", LONGEST_PIECE - 1));
    }
    if score.is_nan() {
        return Err(format!("the score of piece {id} is not a number"));
    }
    let kind = match kind {
        2 => Kind::Unknown,
        3 => Kind::Control,
        4 => Kind::UserDefined,
        5 => Kind::Unused,
        6 => Kind::Byte(byte_of(&text).ok_or_else(|| format!("piece {id}, {text:?}, is no byte such as \"<0x0A>\""))?),
        _ => Kind::Normal,
    };
    Ok(Piece { text, score, kind })
}

/// The byte that a piece such as "<0x0A>" stands for.
pub(super) fn byte_of(name: &str) -> Option<u8> {
    let byte = u8::from_str_radix(name.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()?;
    (format!("<0x{byte:02X}>") == name).then_some(byte)
}

fn text(content: &[u8], what: &str) -> Outcome<String> {
    String::from_utf8(content.to_vec()).map_err(|_| format!("{what} is not UTF-8"))
}

/// A field's value in Protocol Buffers' wire format, in the forms that are used here.
enum Value<'a> {
    Number(u64),
    Four(u32),
    Bytes(&'a [u8]),
    Other,
}

/// Calls `take` for each field of a message.
fn fields<'a>(mut message: &'a [u8], mut take: impl FnMut(u64, Value<'a>) -> Outcome<()>) -> Outcome<()> {
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let field = tag >> 3;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut message)?),
            1 => {
                split(&mut message, 8)?;
                Value::Other
            }
            2 => {
                let length = varint(&mut message)?;
                Value::Bytes(split(&mut message, length)?)
            }
            5 => {
                let bytes = split(&mut message, 4)?;
                Value::Four(bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte)))
            }
            kind => return Err(format!("field {field} has wire type {kind}")),
        };
        if !(1..1 << 29).contains(&field) {
            return Err(format!("it has a field {field}"));
        }
        take(field, value)?;
    }
    Ok(())
}

fn varint(message: &mut &[u8]) -> Outcome<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = split(message, 1)?[0];
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err("a number in it has no end".to_owned())
}

fn put_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

fn put_number(message: &mut Vec<u8>, field: u64, number: u64) {
    put_varint(message, field << 3);
    put_varint(message, number);
}

fn put_block(message: &mut Vec<u8>, field: u64, content: &[u8]) {
    put_varint(message, field << 3 | 2);
    put_varint(message, content.len() as u64);
    message.extend_from_slice(content);
}

fn split<'a>(message: &mut &'a [u8], length: u64) -> Outcome<&'a [u8]> {
    let parts = usize::try_from(length).ok().and_then(|length| message.split_at_checked(length));
    let (part, rest) = parts.ok_or("it is cut off")?;
    *message = rest;
    Ok(part)
}
