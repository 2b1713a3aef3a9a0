//! The paged cache of keys and values: who owns which page, and which pages hold text that may be met again.
//!
//! A page holds the keys and values of 128 consecutive tokens of one sequence, in every layer under the same number. Pages
//! belong to sequences; a page is also known by its text, so that a sequence which begins alike uses it too instead of
//! computing it again. Full pages are shared as they are, since they are not written to again; of a page that begins as wanted
//! and then differs, or ends, a sequence takes a copy of its own.
//! (Kwon et al. 2023, "PagedAttention", sections 4.2 and 4.4)

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;
use std::sync::Arc;

use nn_ffi::{Context, DType, Format, Tensor};

use crate::error::{Error, Result};
use crate::format::block_formats::{BlockFormat, E4M3};

/// Tokens of a page, as `kernels::kv_append_paged` has it.
pub const PAGE: usize = 128;

/// Tokens from which on a page is copied rather than run: copying one costs about as much as a token or two.
pub(super) const LEAST_COPIED: usize = 16;

/// How many ids two texts begin with alike.
pub(super) fn common_prefix(ids: &[i32], others: &[i32]) -> usize {
    ids.iter().zip(others).take_while(|(one, other)| one == other).count()
}

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheFormat {
    /// IEEE binary16.
    #[default]
    F16,
    /// IEEE binary32.
    F32,
    /// bfloat16.
    Bf16,
    /// Blocks of 32 numbers of 8 bits.
    Q80,
    /// OCP 8-bit floating point.
    E4m3,
}

impl CacheFormat {
    /// Their names, in the order of the values.
    pub const NAMES: [&'static str; 5] = ["f16", "f32", "bf16", "q8_0", "e4m3"];

    fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    fn blocks(self) -> Option<&'static BlockFormat> {
        if self == Self::E4m3 { Some(&E4M3) } else { BlockFormat::named(self.name()) }
    }
}

impl FromStr for CacheFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        [Self::F16, Self::F32, Self::Bf16, Self::Q80, Self::E4m3]
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| {
                Error::value(format!("cache_format is '{name}'; it must be one of {}", Self::NAMES.join(", ")))
            })
    }
}

/// Number of a text. They are never used twice, so equal parents and equal ids mean equal texts from the first token on.
/// Those of texts are above 0; the forerunner of a first page is `root`.
type Number = i64;

/// The forerunner of the first page of a text that an adapter computes, whose keys and values are not those of any other.
fn root(adapter: usize) -> Number {
    -(adapter as Number)
}

/// What a page holds: ids after the text of `parent`, the number of the page's forerunner.
#[derive(Debug)]
struct Text {
    parent: Number,
    /// Fewer than `PAGE` in a page that a sequence left incomplete.
    ids: Arc<[i32]>,
    page: usize,
    users: usize,
    /// Its place among the unused ones, while nobody uses it.
    idle: Option<u64>,
}

/// A sequence's place in a cache.
#[derive(Debug)]
pub struct CachedSequence {
    length: usize,
    position: usize,
    pages: Vec<usize>,
    shared: usize,
    /// The number of each full page's text, `None` for one that no other sequence will find.
    texts: Vec<Option<Number>>,
    /// Ids of the last page, while it is not full.
    pending: Vec<i32>,
    /// Number of the last full page's text; `None` when its text is not its own.
    parent: Option<Number>,
    reserved: usize,
    adapter: usize,
}

impl CachedSequence {
    /// Rows in the cache: tokens that the next one sees.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Tokens so far, the place of the next one; more than the length when the oldest pages were dropped.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The pages of the rows, in order.
    pub fn pages(&self) -> &[usize] {
        &self.pages
    }

    /// Rows that it found when it was opened.
    pub fn shared(&self) -> usize {
        self.shared
    }

    /// The number of the adapter that computes it, 0 without a name.
    pub(super) fn adapter(&self) -> usize {
        self.adapter
    }
}

/// Pages for the keys and values of all layers, in one allocation. Each new page is one that was never used, or one whose text
/// has waited longest for somebody to share it.
#[derive(Debug)]
pub struct PagedCache {
    context: usize,
    num_pages: usize,
    page_bytes: usize,
    format: Format,
    memory: Tensor,
    keys: Vec<Tensor>,
    values: Vec<Tensor>,
    free: Vec<usize>,
    /// Texts that are unused now; oldest first.
    idle: BTreeMap<u64, Number>,
    /// When the next text becomes unused.
    clock: u64,
    texts: HashMap<Number, Text>,
    /// Full pages by parent and ids.
    full: HashMap<(Number, Arc<[i32]>), Number>,
    /// All pages by parent, in the order in which they became known.
    behind: HashMap<Number, Vec<Number>>,
    last_number: Number,
    reserved: usize,
}

/// What a cache is for: layers, key and value heads, elements of a head; how many pages it has, and the most rows of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct CacheSizes {
    /// Layers of the model.
    pub layers: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Pages in all.
    pub pages: usize,
    /// Most rows of a sequence.
    pub context: usize,
}

impl PagedCache {
    /// A cache without sequences.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] when the format does not suit the heads, or there would be no page; and as [`Context::empty`].
    pub fn new(ctx: &Context, sizes: CacheSizes, format: CacheFormat) -> Result<Self> {
        let CacheSizes { layers, kv_heads, head_dim, pages, context } = sizes;
        let name = format.name();
        let format = format.blocks().ok_or_else(|| Error::value(format!("there is no format {name}")))?;
        let row_bytes = format.row_bytes(head_dim).map_err(|_| {
            let blocks = format.elements;
            let why = format!("whose blocks of {blocks} do not divide heads of {head_dim} elements");
            Error::value(format!("cache_format is {name}, {why}; choose f16"))
        })?;
        if pages < 1 || context < 1 {
            let problem =
                format!("the cache would have {pages} pages for sequences of {context} tokens; at least 1 each");
            return Err(Error::value(problem));
        }
        let page_bytes = kv_heads * PAGE * row_bytes;
        let memory = ctx.empty(&[layers * 2, pages * page_bytes], DType::U8)?;
        let view = |at: usize| Ok(memory.narrow(0, at, 1)?.view(&[pages, page_bytes])?);
        Ok(Self {
            context,
            num_pages: pages,
            page_bytes,
            format: format.code,
            keys: (0..layers).map(|layer| view(2 * layer)).collect::<Result<_>>()?,
            values: (0..layers).map(|layer| view(2 * layer + 1)).collect::<Result<_>>()?,
            memory,
            free: (0..pages).rev().collect(),
            idle: BTreeMap::new(),
            clock: 0,
            texts: HashMap::new(),
            full: HashMap::new(),
            behind: HashMap::new(),
            last_number: 0,
            reserved: 0,
        })
    }

    /// Most rows of a sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Pages in all.
    pub fn num_pages(&self) -> usize {
        self.num_pages
    }

    /// Most pages of a sequence.
    pub fn max_pages(&self) -> usize {
        self.context.div_ceil(PAGE)
    }

    /// Bytes of the keys, or of the values, of a page in one layer.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> usize {
        self.memory.layout().bytes()
    }

    /// The format of keys and values.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Keys and values of a layer, u8 `[pages, page_bytes]` each.
    pub(super) fn layer(&self, number: usize) -> (&Tensor, &Tensor) {
        (&self.keys[number], &self.values[number])
    }

    /// Pages that a new sequence could have: never used, or kept for their text alone, and not reserved.
    pub fn available(&self) -> usize {
        self.free.len() + self.idle.len() - self.reserved
    }

    /// Pages of open sequences.
    pub fn used(&self) -> usize {
        self.num_pages - self.free.len() - self.idle.len()
    }

    /// A new sequence that will run `ids`, with the pages that hold their beginning already, and with a promise of pages for
    /// `rows` rows in all.
    ///
    /// Its length is how many ids are there; the last one is never, since somebody wants what follows from it. One of more than
    /// `context` rows will drop its oldest pages, for which it gets new ones only if they are not shared: it neither looks for
    /// pages nor lets others find its own.
    ///
    /// # Errors
    ///
    /// [`Error::CacheFull`], with nothing changed, when so many pages are not available.
    pub fn open(&mut self, ids: &[i32], rows: usize) -> Result<CachedSequence> {
        self.open_beside(ids, rows, &[], 0)
    }

    /// The same of a sequence that an adapter of this number computes, for which only pages count that the same one computed;
    /// of these open sequences, the pages that are not full yet count as well.
    pub(super) fn open_beside(
        &mut self,
        ids: &[i32],
        rows: usize,
        beside: &[&CachedSequence],
        adapter: usize,
    ) -> Result<CachedSequence> {
        let mut sequence = CachedSequence {
            length: 0,
            position: 0,
            pages: Vec::new(),
            shared: 0,
            texts: Vec::new(),
            pending: Vec::new(),
            parent: Some(root(adapter)),
            reserved: 0,
            adapter,
        };
        if rows > self.context {
            sequence.parent = None;
        } else {
            self.find(&mut sequence, ids);
        }
        let wanted = rows.min(self.context);
        let needed = wanted.div_ceil(PAGE).saturating_sub(sequence.pages.len());
        let available = self.available();
        if needed > available {
            self.close(sequence);
            return Err(Error::CacheFull(format!(
                "a sequence of {wanted} tokens needs {needed} pages of {PAGE} tokens beside those it shares, and {available} \
                 of the cache's {} are available; close a sequence, write fewer tokens, or make the cache larger \
                 (cache_tokens is {})",
                self.num_pages,
                self.num_pages * PAGE
            )));
        }
        sequence.reserved = needed;
        self.reserved += needed;
        if let Some(parent) = sequence.parent.filter(|_| needed > 0 || self.available() > 0) {
            let rest = &ids[sequence.length..self.most(ids).max(sequence.length)];
            if let Err(error) = self.copy_part(&mut sequence, parent, rest, beside) {
                self.close(sequence);
                return Err(error);
            }
        }
        (sequence.position, sequence.shared) = (sequence.length, sequence.length);
        Ok(sequence)
    }

    /// Gives a sequence the pages for that many more rows; whether it got any.
    ///
    /// # Errors
    ///
    /// [`Error::CacheFull`] when there is none left, [`Error::Value`] when it would have more than `context` rows.
    pub fn extend(&mut self, sequence: &mut CachedSequence, rows: usize) -> Result<bool> {
        let length = sequence.length + rows;
        if length > self.context {
            let context = self.context;
            let problem = format!("the sequence would have {length} tokens; the context has room for {context}");
            return Err(Error::value(problem));
        }
        let before = sequence.pages.len();
        while sequence.pages.len() * PAGE < length {
            if sequence.reserved > 0 {
                sequence.reserved -= 1;
                self.reserved -= 1;
            } else if self.available() < 1 {
                return Err(self.no_page(sequence));
            }
            let page = self.new_page().ok_or_else(|| self.no_page(sequence))?;
            sequence.pages.push(page);
            sequence.texts.push(None);
        }
        Ok(sequence.pages.len() != before)
    }

    fn no_page(&self, sequence: &CachedSequence) -> Error {
        Error::CacheFull(format!(
            "a sequence of {} tokens needs a further page, and all {} of the cache are in use or promised; close a sequence, \
             or make the cache larger (cache_tokens is {})",
            sequence.length,
            self.num_pages,
            self.num_pages * PAGE
        ))
    }

    /// Counts tokens whose keys and values were written after the sequence's rows. Full pages become known.
    pub fn advance(&mut self, sequence: &mut CachedSequence, ids: &[i32]) {
        sequence.length += ids.len();
        sequence.position += ids.len();
        sequence.pending.extend(ids);
        while sequence.pending.len() >= PAGE {
            let at = sequence.length / PAGE - sequence.pending.len() / PAGE;
            let page: Arc<[i32]> = sequence.pending.drain(..PAGE).collect();
            if let Some(parent) = sequence.parent {
                self.know_full(sequence, parent, at, page);
            }
        }
    }

    /// Drops the oldest page of a sequence that has no room for one more row; whether it did. Its later rows stay where they
    /// are and keep their positions.
    pub fn make_room(&mut self, sequence: &mut CachedSequence) -> bool {
        if sequence.length < self.context || self.context < PAGE {
            return false;
        }
        let (page, text) = (sequence.pages.remove(0), sequence.texts.remove(0));
        sequence.length -= PAGE;
        // What later pages hold was computed with the page that is gone, or will be without it: no other may share it.
        sequence.parent = None;
        if self.release(page, text) {
            sequence.reserved += 1; // a page for a page, so that it cannot fail to get the next one
            self.reserved += 1;
        }
        true
    }

    /// Gives the sequence's pages back. Their text can be shared until they are needed.
    pub fn close(&mut self, sequence: CachedSequence) {
        self.reserved -= sequence.reserved;
        // Later pages first: they are of use only while those before them are there, and so are needed again earlier.
        let whole = sequence.length.is_multiple_of(PAGE);
        let full = if whole { sequence.pages.len() } else { sequence.length / PAGE };
        for (at, (page, text)) in sequence.pages.into_iter().zip(sequence.texts).enumerate().rev() {
            let text = match sequence.parent {
                Some(parent) if at == full && !sequence.pending.is_empty() => {
                    Some(self.know(parent, sequence.pending.as_slice().into(), page))
                }
                _ => text,
            };
            self.release(page, text);
        }
    }

    /// Forgets the texts of unused pages, so that later sequences share nothing with earlier ones.
    pub fn forget(&mut self) {
        for number in std::mem::take(&mut self.idle).into_values() {
            let page = self.lose(number);
            self.free.extend(page);
        }
    }

    /// The sequence's row of a page table, i32 `[max_pages]`.
    pub(super) fn table_row(&self, sequence: &CachedSequence) -> Vec<i32> {
        let mut row = vec![0; self.max_pages()];
        for (place, page) in row.iter_mut().zip(&sequence.pages) {
            *place = *page as i32;
        }
        row
    }

    // Pages

    fn new_page(&mut self) -> Option<usize> {
        if let Some(page) = self.free.pop() {
            return Some(page);
        }
        let (_, number) = self.idle.pop_first()?;
        self.lose(number)
    }

    /// Ends one use of a page; returns whether it is unused now.
    fn release(&mut self, page: usize, text: Option<Number>) -> bool {
        let Some((number, text)) = text.and_then(|number| Some((number, self.texts.get_mut(&number)?))) else {
            self.free.push(page);
            return true;
        };
        text.users -= 1;
        if text.users > 0 {
            return false;
        }
        text.idle = Some(self.clock);
        self.idle.insert(self.clock, number);
        self.clock += 1;
        true
    }

    // Texts

    /// How many of its ids a new sequence may find: not the last.
    fn most(&self, ids: &[i32]) -> usize {
        ids.len().saturating_sub(1).min(self.context)
    }

    /// Gives a new sequence the full pages that hold the beginning of its ids.
    fn find(&mut self, sequence: &mut CachedSequence, ids: &[i32]) {
        let mut parent = root(sequence.adapter);
        for ids in ids[..self.most(ids)].chunks_exact(PAGE) {
            let Some(number) = self.full.get(&(parent, ids.into())).copied() else { break };
            let Some(text) = self.texts.get_mut(&number) else { break };
            if let Some(stamp) = text.idle.take() {
                self.idle.remove(&stamp);
            }
            text.users += 1;
            sequence.pages.push(text.page);
            sequence.texts.push(Some(number));
            sequence.length += PAGE;
            parent = number;
        }
        sequence.parent = Some(parent);
    }

    /// Behind its full pages, gives a sequence a copy of the page that has most of the rest's beginning.
    fn copy_part(
        &mut self,
        sequence: &mut CachedSequence,
        parent: Number,
        rest: &[i32],
        beside: &[&CachedSequence],
    ) -> Result<()> {
        let known = self.behind.get(&parent).into_iter().flatten().filter_map(|number| self.texts.get(number));
        let open = beside.iter().filter(|other| other.parent == Some(parent) && !other.pending.is_empty());
        let held = known
            .map(|text| (&text.ids[..], text.page))
            .chain(open.map(|other| (&other.pending[..], other.pages[other.length / PAGE])));
        let (mut best, mut most) = (None, LEAST_COPIED - 1);
        for (ids, page) in held {
            let common = common_prefix(ids, rest);
            if common > most {
                (best, most) = (Some(page), common);
            }
        }
        let Some(source) = best else { return Ok(()) };
        self.extend(sequence, most)?;
        let page = sequence.pages.last().copied().unwrap_or(source);
        // They are the same when no other was left than that which waited longest.
        if page != source {
            for pool in self.keys.iter().chain(&self.values) {
                pool.narrow(0, page, 1)?.copy_from(&pool.narrow(0, source, 1)?)?;
            }
        }
        sequence.pending = rest[..most].to_vec();
        sequence.length += most;
        Ok(())
    }

    /// Makes the text of a page findable.
    fn know(&mut self, parent: Number, ids: Arc<[i32]>, page: usize) -> Number {
        self.last_number += 1;
        let number = self.last_number;
        if ids.len() == PAGE {
            self.full.insert((parent, Arc::clone(&ids)), number);
        }
        self.behind.entry(parent).or_default().push(number);
        self.texts.insert(number, Text { parent, ids, page, users: 1, idle: None });
        number
    }

    /// Makes a full page findable, unless another one with the same text is: then that one stays the known one.
    fn know_full(&mut self, sequence: &mut CachedSequence, parent: Number, at: usize, ids: Arc<[i32]>) {
        let number = match self.full.get(&(parent, Arc::clone(&ids))) {
            Some(number) => *number,
            None => {
                let number = self.know(parent, ids, sequence.pages[at]);
                sequence.texts[at] = Some(number);
                number
            }
        };
        sequence.parent = Some(number);
    }

    /// Forgets the text of an unused page; gives the page.
    fn lose(&mut self, number: Number) -> Option<usize> {
        let text = self.texts.remove(&number)?;
        if text.ids.len() == PAGE {
            self.full.remove(&(text.parent, text.ids));
        }
        if let Some(siblings) = self.behind.get_mut(&text.parent) {
            siblings.retain(|sibling| *sibling != number);
            if siblings.is_empty() {
                self.behind.remove(&text.parent);
            }
        }
        Some(text.page)
    }
}
