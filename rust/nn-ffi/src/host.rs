//! Bytes of the host that tensors may look at without a copy: mapped files, and what was put together from them.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use memmap2::{Mmap, MmapMut, UncheckedAdvice};

/// Bytes that nothing in this process can change, and that several owners may share: pages that are mapped for reading.
///
/// A kernel that took them for its output would end the program, as one does that writes where no memory is.
#[derive(Clone)]
pub struct HostBytes {
    pages: Arc<Pages>,
    range: Range<usize>,
}

struct Pages {
    map: Mmap,
    /// Whether they are a file's, from which they come again when they were given back.
    of_file: bool,
}

impl Pages {
    fn whole(map: Mmap, of_file: bool) -> HostBytes {
        HostBytes { range: 0..map.len(), pages: Arc::new(Self { map, of_file }) }
    }
}

impl HostBytes {
    /// All bytes of a file, over its pages.
    ///
    /// A file that somebody cuts afterwards cannot be told from here: reading what is gone ends the process (SIGBUS), and
    /// what somebody overwrites may be seen. Writers that replace files by renaming never do either.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn map(file: &File) -> io::Result<Self> {
        // SAFETY: the mapping is private to reading, so that nothing of this process writes to it. That nobody else does is
        // what whoever opens a model has to see to, as with every program that maps one; numbers are read from it, and
        // each of its bytes is a valid one whatever is there.
        let pages = unsafe { Mmap::map(file)? };
        Ok(Pages::whole(pages, true))
    }

    /// Copies of several pieces, one after the other.
    ///
    /// # Errors
    ///
    /// What the system says when there is no memory for them.
    pub fn joined<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> io::Result<Self> {
        let parts: Vec<&[u8]> = parts.into_iter().collect();
        let mut pages = MmapMut::map_anon(parts.iter().map(|part| part.len()).sum())?;
        let mut rest = &mut pages[..];
        for part in parts {
            let (place, after) = std::mem::take(&mut rest).split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = after;
        }
        // Memory of its own that cannot be written any more: what tensors look at must not change behind a slice.
        Ok(Pages::whole(pages.make_read_only()?, false))
    }

    /// Some of them; `None` where there are no such.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        let (start, end) = (self.range.start.checked_add(range.start)?, self.range.start.checked_add(range.end)?);
        (start <= end && end <= self.range.end).then(|| Self { pages: Arc::clone(&self.pages), range: start..end })
    }

    /// The bytes of both, where `next` begins in the same pages at the end of these.
    #[must_use]
    pub fn followed_by(&self, next: &Self) -> Option<Self> {
        let adjacent = Arc::ptr_eq(&self.pages, &next.pages) && self.range.end == next.range.start;
        adjacent.then(|| Self { pages: Arc::clone(&self.pages), range: self.range.start..next.range.end })
    }

    /// Whether both are the same bytes in the same place.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pages, &other.pages) && self.range == other.range
    }

    /// Gives a file's pages back to the system: they are read again when they are looked at. Bytes that are no file's, and
    /// systems that cannot, keep them.
    pub fn release(&self) {
        if self.range.is_empty() || !self.pages.of_file {
            return;
        }
        let map = &self.pages.map;
        // SAFETY: of a file that is mapped for reading alone nothing is lost: what is looked at again comes from it.
        let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, self.range.start, self.range.len()) };
    }
}

impl Deref for HostBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages.map[self.range.clone()]
    }
}

impl fmt::Debug for HostBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBytes({} of {})", self.range.len(), self.pages.map.len())
    }
}
